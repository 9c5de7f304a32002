package uidoor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/ui"
)

const (
	// codeLife is how long a code is valid. The browser of the operator needs the code once.
	codeLife = time.Minute
	// idleLife is how long the door stays open although nobody uses it.
	idleLife = time.Hour
	maxBody  = 64 << 10
	// bodyTime is how long a request may take to arrive after its header.
	bodyTime = 10 * time.Second
	secret   = 32 // bytes of a code and of a bearer
)

// ErrUsedCode is the refusal of a code that was used before. The code may be stolen.
var ErrUsedCode = tutti.Errorf(tutti.CodeUnauthenticated, "the code of this address was used before; if you did not use it, end \"tutti ui\" now")

// Forwarder sends a call to the server with the operator's certificate, and writes the answer.
type Forwarder interface {
	Forward(w http.ResponseWriter, r *http.Request, call string, body []byte, endless bool)
}

// About is what the page says about itself.
type About struct {
	Operator string `json:"operator"`
	Server   string `json:"server"`
	Release  string `json:"release"`
}

// Options are the settings of a door.
type Options struct {
	Server Forwarder
	About  About
	Port   string // the port of the door's address
	// Refused is called with the reason of each refusal. The reason contains no secret. Refused may be nil.
	Refused func(why error)
}

// Door is the handler of the page and of its calls.
type Door struct {
	Options
	mux     *http.ServeMux
	entered func() // called after each exchange of a code

	mu     sync.Mutex
	codes  map[[sha256.Size]byte]*code
	bearer *[sha256.Size]byte // nil until a browser has shown a code
	calls  int                // running calls
	usedAt time.Time
}

// The door stores only digests of codes and bearers.
type code struct {
	until time.Time
	used  bool
}

// New returns a door that nobody can use before the first call of Code.
func New(o Options) *Door {
	d := &Door{Options: o, mux: http.NewServeMux(), entered: func() {}, codes: map[[sha256.Size]byte]*code{}, usedAt: time.Now()}
	d.mux.Handle("GET /ui/", http.HandlerFunc(page))
	d.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ui/", http.StatusFound) })
	d.mux.HandleFunc("POST /door/exchange", d.exchange)
	d.mux.HandleFunc("POST /door/about", d.withBearer(func(w http.ResponseWriter, _ *http.Request, _ []byte) { answer(w, http.StatusOK, d.About) }))
	d.mux.HandleFunc("POST /v1/{call...}", d.withBearer(d.pass))
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.refuse(w, http.StatusNotFound, tutti.Errorf(tutti.CodeNotFound, "no page %s %.200q", r.Method, r.URL.Path))
	})
	return d
}

// Code returns a new code. A browser can exchange the code for the bearer once, within a minute.
func (d *Door) Code() string {
	text := random()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.codes[sha256.Sum256([]byte(text))] = &code{until: time.Now().Add(codeLife)}
	return text
}

// random returns a new secret as a text.
func random() string {
	b := make([]byte, secret)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	within(w, bodyTime)
	err := checkHost(r, d.Port)
	if err == nil {
		err = checkOrigin(r)
	}
	if err != nil {
		d.refuse(w, http.StatusForbidden, err)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// exchange gives the bearer to the first browser that shows a valid code. Each exchange makes a new bearer, and ends the
// one before it.
func (d *Door) exchange(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	var in struct {
		Code string `json:"code"`
	}
	if err == nil {
		err = tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(body, &in), "request")
	}
	if err != nil {
		d.refuse(w, http.StatusBadRequest, err)
		return
	}
	if err := d.redeem(in.Code); err != nil {
		d.refuse(w, http.StatusUnauthorized, err)
		return
	}
	d.entered()
	bearer := random()
	d.mu.Lock()
	sum := sha256.Sum256([]byte(bearer))
	d.bearer, d.usedAt = &sum, time.Now()
	d.mu.Unlock()
	answer(w, http.StatusOK, struct {
		Bearer string `json:"bearer"`
		About
	}{bearer, d.About})
}

// redeem uses a code up.
func (d *Door) redeem(text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.codes[sha256.Sum256([]byte(text))]
	switch {
	case c == nil:
		return tutti.Errorf(tutti.CodeUnauthenticated, "the address has no valid code; run \"tutti ui\" again")
	case c.used:
		return ErrUsedCode
	case time.Now().After(c.until):
		return tutti.Errorf(tutti.CodeUnauthenticated, "the code of this address was valid for %s; run \"tutti ui\" again", codeLife)
	}
	c.used = true
	return nil
}

// withBearer returns a handler that needs the bearer.
func (d *Door) withBearer(next func(w http.ResponseWriter, r *http.Request, body []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !d.knows(bearerOf(r)) {
			d.refuse(w, http.StatusUnauthorized, tutti.Errorf(tutti.CodeUnauthenticated, "the request has no valid bearer; run \"tutti ui\" again"))
			return
		}
		body, err := readBody(w, r)
		if err != nil {
			d.refuse(w, http.StatusBadRequest, err)
			return
		}
		defer d.use()()
		next(w, r, body)
	}
}

func (d *Door) knows(bearer string) bool {
	sum := sha256.Sum256([]byte(bearer))
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bearer != nil && subtle.ConstantTimeCompare(sum[:], d.bearer[:]) == 1
}

// pass passes a reading call on.
func (d *Door) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	name := r.PathValue("call")
	how, ok := calls[name]
	if !ok {
		d.refuse(w, http.StatusForbidden, tutti.Errorf(tutti.CodeRefused, "this page only reads, so it cannot call %.100q; use the command line", name))
		return
	}
	d.Server.Forward(w, r, name, body, how.endless)
}

// use notes that a call begins. It returns a function for the end of the call.
func (d *Door) use() func() {
	note := func(calls int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls += calls
		d.usedAt = time.Now()
	}
	note(1)
	return func() { note(-1) }
}

// Unused waits until nobody has used the door for an hour, or until ctx ends. A call that runs uses the door.
func (d *Door) Unused(ctx context.Context) error {
	for {
		d.mu.Lock()
		left := time.Until(d.usedAt.Add(idleLife))
		if d.calls > 0 {
			left = idleLife
		}
		d.mu.Unlock()
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(left):
		}
	}
}

// readBody reads the JSON of a request. Forms of foreign pages cannot send this content type.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the request has the content type %.100q, but it must be application/json", r.Header.Get("Content-Type"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, tutti.Errorf(tutti.CodeDeadline, "the request did not arrive within %s", bodyTime)
	}
	if err == nil {
		within(w, 0)
	}
	return body, tutti.Wrap(tutti.CodeInvalid, err, "request")
}

// within limits how long reading from the connection may take. Zero means that there is no limit: the answer may be a
// stream, and a connection that can no longer be read ends the call.
func within(w http.ResponseWriter, limit time.Duration) {
	var until time.Time
	if limit > 0 {
		until = time.Now().Add(limit)
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // the recorder of a test has no connection
}

func (d *Door) refuse(w http.ResponseWriter, status int, err error) {
	if d.Refused != nil && status != http.StatusNotFound {
		d.Refused(err)
	}
	w.Header().Set("Tutti-Door", "refused") // with this header the page can tell a refusal of the door from one of the server
	answer(w, status, struct {
		Code    tutti.Code `json:"code"`
		Message string     `json:"message"`
	}{tutti.CodeOf(err), err.Error()})
}

func answer(w http.ResponseWriter, status int, out any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out) // an error means that the browser has gone
}

// The function `page` sends a file of the page. Every other path below /ui/ is a link into the page, so the browser gets the page itself.
func page(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/ui/")
	if info, err := fs.Stat(ui.Files(), name); err != nil || info.IsDir() || name == "" {
		name = "index.html"
	}
	content, err := fs.ReadFile(ui.Files(), name)
	if err != nil {
		http.Error(w, "this program was built without the page", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kindOf(name))
	_, _ = w.Write(content) // an error means that the browser has gone
}

// The function `kindOf` returns the content type of a file of the page. Package mime would ask the machine's tables.
func kindOf(name string) string {
	switch {
	case strings.HasSuffix(name, ".html"):
		return "text/html; charset=utf-8"
	case strings.HasSuffix(name, ".js"):
		return "text/javascript; charset=utf-8"
	case strings.HasSuffix(name, ".css"):
		return "text/css; charset=utf-8"
	}
	return "application/octet-stream"
}
