//go:build !unix

package cli

// onHealthSignal does nothing: there are no such signals here.
func onHealthSignal(func(healthy bool)) (stop func()) { return func() {} }
