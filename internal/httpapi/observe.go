package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/tutti-project/tutti/internal/metrics"
)

// callMetrics is the scrape of Prometheus. It is not a call of the client.
const (
	callMetrics = "metrics"
	pathMetrics = "/metrics"
)

// Observer counts the requests of operators.
type Observer interface {
	// Expect gets the name of each call before there are requests.
	Expect(call string)
	// Called gets each request that has ended. The argument ok is false if the server refused the request, or if the
	// request failed.
	Called(call, class string, ok bool, took time.Duration)
}

// reading are the calls that change nothing in the log, and that are not streams.
var reading = map[string]bool{
	callListJobs: true, callRunRecord: true, callListTokens: true, callShowJoinCA: true, callPending: true, callOperators: true,
	callAccess: true, callListNodes: true, callMissingBlobs: true, callPushEffect: true, callShowCode: true, callReadCode: true,
	callListCode: true, callGetCode: true, callSigning: true, callSuggest: true, callGetFleet: true, callListValues: true,
	callPageValues: true, callEffect: true, callRecipients: true, callListSecrets: true, callSecretEffect: true,
	callListPauses: true, callShowNode: true, callExplainNode: true, callExplainValue: true, callExplainRes: true, callGraph: true,
	callRunReport: true, callJobChanges: true, callShowRotation: true, callMetrics: true, callCauses: true,
}

func classOf(name string, rt route) string {
	switch {
	case rt.streams:
		return metrics.ClassStream
	case reading[name]:
		return metrics.ClassRead
	}
	return metrics.ClassWrite
}

// The type `outcome` is what a request has answered so far.
type outcome struct {
	http.ResponseWriter
	status int
	failed bool // a stream ended with an error
}

// WriteHeader implements http.ResponseWriter.
func (o *outcome) WriteHeader(status int) {
	if o.status == 0 {
		o.status = status
	}
	o.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (o *outcome) Write(b []byte) (int, error) {
	if o.status == 0 {
		o.status = http.StatusOK
	}
	return o.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the writer below.
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *outcome) ok() bool {
	return o.status >= http.StatusOK && o.status < http.StatusBadRequest && !o.failed
}

type outcomeKey struct{}

// The function `broke` notes that a stream ended with an error. The status of the answer was sent before.
func broke(ctx context.Context) {
	if o, is := ctx.Value(outcomeKey{}).(*outcome); is {
		o.failed = true
	}
}

// The method `observed` tells the Observer how each request ends.
func (o Options) observed(name string, rt route, next http.Handler) http.Handler {
	if o.Observer == nil {
		return next
	}
	o.Observer.Expect(name)
	class := classOf(name, rt)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, began := &outcome{ResponseWriter: w}, time.Now()
		defer func() { o.Observer.Called(name, class, out.ok(), time.Since(began)) }() // a panic has no status, so it is not ok
		next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), outcomeKey{}, out)))
	})
}

// scrape answers Prometheus.
func (s Services) scrape(w http.ResponseWriter, r *http.Request, _ []byte) {
	if s.Metrics == nil {
		http.NotFound(w, r)
		return
	}
	s.Metrics.ServeHTTP(w, r)
}
