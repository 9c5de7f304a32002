package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const (
	maxBody = 32 << 20
	maxBlob = 64<<20 + 1<<10
)

// The function type `call` decodes a request's body, executes the request and returns the value to
// encode.
type call func(ctx context.Context, body []byte) (any, error)

// The function `answer` returns a call for a method with an input and an output.
func answer[In, Out any](method func(context.Context, In) (Out, error)) call {
	return func(ctx context.Context, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, tutti.Wrap(tutti.CodeInvalid, err, "request")
		}
		return method(ctx, in)
	}
}

// The function `do` returns a call for a method without an output.
func do[In any](method func(context.Context, In) error) call {
	return answer(func(ctx context.Context, in In) (nothing, error) { return nothing{}, method(ctx, in) })
}

// The function `list` returns a call for a method without an input.
func list[Out any](method func(context.Context) (Out, error)) call {
	return func(ctx context.Context, _ []byte) (any, error) { return method(ctx) }
}

// jsonText is JSON that is copied without a change.
type jsonText = json.RawMessage

// Options are the settings of the handler.
type Options struct {
	Services
	// Admit identifies the sender of a request, and checks that the sender has one of the verbs. If
	// verbs is empty, the sender needs no verb. Admit returns a context for the request. This context
	// may end before the request ends. Admit also returns a function that the handler calls after the
	// request. If Admit returns an error, the handler refuses the request.
	Admit func(r *http.Request, verbs []tutti.Verb) (ctx context.Context, leave func(), err error)
	// The handler calls Denied if Admit refused a request with CodeUnauthenticated or CodeRefused. The handler also
	// calls Denied for requests from a foreign web page, and for requests that ended in a panic. It may block.
	Denied func(r *http.Request, what string, cause error)
	// Names returns an error if the server's certificate does not name the host. If Names is nil, the host of a
	// request is not checked.
	Names  func(host string) error
	Logger *slog.Logger
	Ready  <-chan struct{}
	// Observer counts the requests. It may be nil.
	Observer Observer
	// Trust returns the CAs by which operators should verify the server, and the CA that now issues the
	// operators' certificates. If Trust is nil, answers do not contain these CAs.
	Trust func() (tutti.KeySets, error)
	// Position returns the server's position, and refuses operators who have seen a higher position. If Position is
	// nil, answers have no position.
	Position Positions
	// Binding returns the bytes of a connection that a machine signs when it joins with its certificate. If Binding is
	// nil, no machine can join with a certificate.
	Binding func(*tls.ConnectionState) ([]byte, error)
}

// NewHandler returns the handler of all calls. NewHandler also handles /healthz (the process runs) and /readyz (the
// server serves).
func NewHandler(o Options) http.Handler {
	mux := http.NewServeMux()
	costs := newBudget()
	for name, rt := range o.routes() {
		mux.Handle(cmp.Or(rt.at, "POST /v1/"+name), o.observed(name, rt, o.operators(rt, costs)))
	}
	joins := func(name string, c func(r *http.Request) call) {
		mux.HandleFunc("POST /v1/"+name, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
			if err != nil {
				write(w, nil, tutti.Wrap(tutti.CodeInvalid, err, "request"))
				return
			}
			out, err := c(r)(r.Context(), body)
			write(w, out, err)
		})
	}
	joins(callEnrol, func(*http.Request) call { return answer(o.Nodes.Enrol) })
	joins(callJoin, func(r *http.Request) call {
		return answer(func(ctx context.Context, in api.JoinRequest) (out api.JoinAnswer, err error) {
			if o.Binding == nil {
				return out, tutti.Errorf(tutti.CodeInvalid, "a machine joins with its certificate only by the operators' port")
			}
			if in.Binding, err = o.Binding(r.TLS); err != nil {
				return out, err
			}
			return o.Nodes.EnrolByCertificate(ctx, in)
		})
	})
	mux.HandleFunc("GET "+pathHealth, healthy)
	mux.HandleFunc("GET "+pathReady, func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-o.Ready:
			write(w, "ready", nil)
		default:
			write(w, nil, tutti.Errorf(tutti.CodeUnavailable, "the server is still reading its log"))
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, nil, tutti.Errorf(tutti.CodeNotFound, noCall+"%s %s", r.Method, r.URL.Path))
	})
	return o.survive(o.ownPages(mux))
}

// NewClosedHandler returns the handler of a server that refuses all calls. /healthz works as usual, and every other
// path answers with the reason.
func NewClosedHandler(why func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathHealth, healthy)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { write(w, nil, why()) })
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { write(w, "ok", nil) }

// The method `operators` handles a request if Admit identifies the operator and the operator has one
// of the verbs.
func (o Options) operators(rt route, costs *budget) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := o.Admit(r, rt.verbs)
		if err != nil {
			if code := tutti.CodeOf(err); code == tutti.CodeUnauthenticated || code == tutti.CodeRefused {
				o.Denied(r, "call "+r.URL.Path, err)
			}
			write(w, nil, err)
			return
		}
		defer leave()
		if o.Trust != nil {
			if sets, err := o.Trust(); err == nil {
				setTrust(w.Header(), sets)
			}
		}
		if o.Position != nil {
			w = &positioned{ResponseWriter: w, position: o.Position}
			seen, err := positionIn(r.Header, headerSeen)
			if err == nil {
				err = o.Position.Behind(ctx, seen)
			}
			if err != nil {
				write(w, nil, err)
				return
			}
		}
		enter := func() (func(), error) { return costs.call(ctx, tutti.Actor(ctx)) }
		if rt.streams {
			enter = func() (func(), error) { return costs.stream(tutti.Actor(ctx)) }
		}
		end, err := enter()
		if err != nil {
			write(w, nil, err)
			return
		}
		defer end()
		body, release, err := costs.read(ctx, w, r, rt.limit)
		if err != nil {
			write(w, nil, err)
			return
		}
		defer release()
		rt.serve(w, r.WithContext(ctx), body)
	})
}

// The method `survive` catches a panic in a handler, so that the process does not end. Only the request of this
// handler fails. If its answer has already begun, the answer breaks off.
func (o Options) survive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // a sentinel, by contract compared so
				panic(p)
			}
			err := tutti.Errorf(tutti.CodeInternal, "%s: internal error of the server, see the server's log", r.URL.Path)
			o.Logger.Error("a request caused a panic", "call", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			o.Denied(r, "cause a panic in "+r.URL.Path, err)
			write(w, nil, err)
		}()
		next.ServeHTTP(w, r)
	})
}

// streamLine is one line of a streamed answer. The last line contains End or Error.
type streamLine[Item any] struct {
	Item  *Item      `json:"item,omitempty"`
	End   bool       `json:"end,omitempty"`
	Error *errorBody `json:"error,omitempty"`
}

// The function `stream` returns a handler for a method that yields items. The handler writes one line
// for each item.
func stream[In, Item any](method func(context.Context, In, func(Item) error) error) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, r *http.Request, body []byte) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			write(w, nil, tutti.Wrap(tutti.CodeInvalid, err, "request"))
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		out := newEncoder(w)
		flush := http.NewResponseController(w)
		err := method(r.Context(), in, func(item Item) error {
			if err := out.Encode(streamLine[Item]{Item: &item}); err != nil {
				return err
			}
			return flush.Flush()
		})
		last := streamLine[Item]{End: err == nil}
		if err != nil {
			broke(r.Context())
			last.Error = bodyOf(err)
		}
		_ = out.Encode(last) // an error means that the client has disconnected
	}
}

type errorBody struct {
	Code    tutti.Code `json:"code"`
	Message string     `json:"message"`
}

func bodyOf(err error) *errorBody {
	return &errorBody{Code: tutti.CodeOf(err), Message: err.Error()}
}

func (b errorBody) err() error { return &tutti.Error{Code: b.Code, Message: b.Message} }

// statuses maps codes to HTTP statuses. No other code converts codes to HTTP statuses.
var statuses = map[tutti.Code]int{
	tutti.CodeInvalid:         http.StatusBadRequest,
	tutti.CodeNotFound:        http.StatusNotFound,
	tutti.CodeConflict:        http.StatusConflict,
	tutti.CodeUnauthenticated: http.StatusUnauthorized,
	tutti.CodeRefused:         http.StatusForbidden,
	tutti.CodeUnavailable:     http.StatusServiceUnavailable,
	tutti.CodeDeadline:        http.StatusGatewayTimeout,
	tutti.CodeDamaged:         http.StatusInternalServerError,
	tutti.CodeInternal:        http.StatusInternalServerError,
}

func write(w http.ResponseWriter, out any, err error) {
	status := http.StatusOK
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = tutti.Wrap(tutti.CodeInvalid, tooLarge, "request")
		}
		body := bodyOf(err)
		// a code without a status is unknown to this release, and net/http would panic on status 0
		if statuses[body.Code] == 0 {
			body.Code = tutti.CodeInternal
		}
		out, status = body, statuses[body.Code]
	}
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(status)
	_ = newEncoder(w).Encode(out) // an error means that the client has disconnected
}

// newEncoder returns an encoder that does not escape < and &, so that values stay readable.
func newEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}
