package transport

// New returns the way to address.
func New(address, scheme string, p Protocol, dial Dialer) Transport {
	if scheme == "http" && p == HTTP11 {
		return newPlain(address, dial)
	}
	return newStandard(address, p, dial)
}
