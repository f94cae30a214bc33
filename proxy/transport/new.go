package transport

// New returns a transport to address, host and port, whose connections dial makes. It connects when
// it is first used.
func New(address, scheme string, p Protocol, dial Dialer) Transport {
	if scheme == "http" && p == HTTP11 {
		return newPlain(address, dial)
	}
	return newStandard(address, p, dial)
}
