package middleware

import "net/http"

// recorder is the ResponseWriter of every request. It notes the status and size of the response,
// and decides about Connection: close when the response begins. [http.ResponseController] unwraps
// it for everything else.
type recorder struct {
	http.ResponseWriter

	status  int      // of the response, 0 until it begins; not of a 1xx before it
	bytes   int      // of the body
	drainer *Drainer // nil: Drain is not used
}

// Unwrap serves [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends a 1xx response, or begins the final response. It ignores a second final
// response.
func (w *recorder) WriteHeader(status int) {
	switch {
	case status < http.StatusOK && status != http.StatusSwitchingProtocols:
		w.ResponseWriter.WriteHeader(status)
	case w.status == 0:
		w.begin(status)
		w.ResponseWriter.WriteHeader(status)
	}
}

// begin records the status of a response that begins.
func (w *recorder) begin(status int) {
	w.status = status
	if w.drainer != nil && status >= http.StatusOK && w.drainer.Draining() {
		w.Header().Set("Connection", "close")
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += n
	return n, err
}

// FlushError implements flushing for [http.ResponseController].
func (w *recorder) FlushError() error {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	if inner, ok := w.ResponseWriter.(interface{ FlushError() error }); ok {
		return inner.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (w *recorder) Flush() { _ = w.FlushError() }

// recorded returns w if it is a recorder, and otherwise a new recorder around w.
func recorded(w http.ResponseWriter) *recorder {
	if r, ok := w.(*recorder); ok {
		return r
	}
	return &recorder{ResponseWriter: w}
}
