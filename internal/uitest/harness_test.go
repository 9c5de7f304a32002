//go:build ui

// Package uitest drives the page of `tutti ui` with a real browser.
package uitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/internal/uidoor"
)

const deadline = 90 * time.Second // of one test; the machine may be busy

var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(func() int {
		path, err := exec.LookPath("chromium")
		if err != nil {
			fmt.Println("uitest: NOT TESTED: there is no chromium; as root: apt-get install --no-install-recommends chromium")
			return 1
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(deadline))
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox)
		}
		allocator, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		defer endAllocator()
		var end func()
		browser, end = chromedp.NewContext(allocator)
		defer end()
		if err := chromedp.Run(browser); err != nil {
			fmt.Println("uitest: chromium:", err)
			return 1
		}
		return m.Run()
	}())
}

// A backend answers the calls that the door passes on.
type backend struct {
	uidoor.Forwarder // of a real server
	// watch replaces fleet/watch, and answers replaces other calls. Both may be nil.
	watch   http.HandlerFunc
	answers map[string]http.HandlerFunc
}

func (b *backend) Forward(w http.ResponseWriter, r *http.Request, call string, body []byte, endless bool) {
	switch h := b.answers[call]; {
	case h != nil:
		h(w, r)
	case call == "fleet/watch" && b.watch != nil:
		b.watch(w, r)
	default:
		b.Forwarder.Forward(w, r, call, body, endless)
	}
}

// of returns a backend of a fleet.
func of(t *testing.T, f *servertest.Fleet) *backend {
	t.Helper()
	s := httptest.NewServer(httpapi.NewHandler(httpapi.Options{
		Services: httpapi.Services{Jobs: f, Nodes: f, Tokens: f, Operators: f, Codes: f, Signings: f, Values: f, Pauses: f, Audits: f, Explains: f, Remotes: f, Reports: f, Secrets: f, Rotations: f},
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			return tutti.WithActor(r.Context(), "operator:ada"), func() {}, nil
		},
		Denied: func(*http.Request, string, error) {},
		Ready:  f.Ready(),
	}))
	t.Cleanup(s.Close)
	return &backend{Forwarder: httpapi.NewClient(s.URL, s.Client())}
}

// A door is an open door.
type door struct {
	url     string // with the code
	origin  string
	mu      sync.Mutex
	refused []string
}

func (d *door) refusals() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.refused, "\n")
}

func openDoor(t *testing.T, b uidoor.Forwarder, path string) *door {
	t.Helper()
	d := &door{}
	ctx, end := context.WithCancel(context.Background())
	opened, ended := make(chan uidoor.Opened, 1), make(chan error, 1)
	go func() {
		ended <- uidoor.Serve(ctx, uidoor.Options{
			Server: b, About: uidoor.About{Operator: "ada", Server: "https://tutti:8150", Release: "1.2.3"},
			Refused: func(why error) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.refused = append(d.refused, why.Error())
			},
		}, path, func(o uidoor.Opened) { opened <- o })
	}()
	select {
	case o := <-opened:
		d.url = o.URL
		d.origin, _, _ = strings.Cut(o.URL, "/ui/")
	case err := <-ended:
		end()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return d
}

// A tab is a tab of the browser. At the end of the test, the tab must have sent no request to another origin, and the
// browser must have nothing to complain about.
type tab struct {
	t       *testing.T
	ctx     context.Context
	mu      sync.Mutex
	sent    []string
	faults  []string
	profile cdp.BrowserContextID
	// foreign allows requests of a foreign page in this tab
	foreign bool
	// loud allows failed requests, which the browser reports as errors
	loud bool
}

// newTab opens a tab. The tab shares the browser profile of another tab, or has a new profile if `from` is nil.
func newTab(t *testing.T, from *tab) *tab {
	t.Helper()
	b := &tab{t: t}
	whole := cdp.WithExecutor(browser, chromedp.FromContext(browser).Browser)
	var err error
	if from != nil {
		b.profile = from.profile
	} else if b.profile, err = target.CreateBrowserContext().Do(whole); err != nil {
		t.Fatal(err)
	}
	id, err := target.CreateTarget("about:blank").WithBrowserContextID(b.profile).WithNewWindow(true).WithWidth(1280).WithHeight(900).Do(whole)
	if err != nil {
		t.Fatal(err)
	}
	copies := []cdpbrowser.PermissionType{cdpbrowser.PermissionTypeClipboardReadWrite, cdpbrowser.PermissionTypeClipboardSanitizedWrite}
	if err := cdpbrowser.GrantPermissions(copies).WithBrowserContextID(b.profile).Do(whole); err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(browser, chromedp.WithTargetID(id))
	ctx, late := context.WithTimeout(ctx, deadline)
	b.ctx = ctx
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.sent = append(b.sent, e.Request.URL)
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
				b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
			}
		case *page.EventJavascriptDialogOpening:
			b.faults = append(b.faults, "a dialog: "+e.Message)
		}
	})
	b.do(network.Enable(), cdplog.Enable(), runtime.Enable())
	t.Cleanup(func() {
		late()
		end()
		if from == nil {
			_ = target.DisposeBrowserContext(b.profile).Do(whole) // the browser ends after the tests
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, fault := range b.faults {
			if !b.loud || !strings.Contains(fault, "Failed to load resource") {
				t.Errorf("the browser: %s", fault)
			}
		}
		for _, url := range b.sent {
			if !b.foreign && !strings.HasPrefix(url, "http://127.0.0.1:") && !strings.HasPrefix(url, "data:") {
				t.Errorf("a request left the origin: %s", url)
			}
			if strings.Contains(url, "code=") && !strings.Contains(url, "#code=") || strings.Contains(url, "earer") {
				t.Errorf("an address contains a secret: %s", url)
			}
		}
	})
	return b
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(context.WithoutCancel(b.ctx), chromedp.Evaluate(`document.body ? document.body.innerText : ""`, &text))
		b.t.Fatalf("%v; the page says:\n%.3000s", err, text)
	}
}

// open opens the page and waits until it shows this text.
func (b *tab) open(url, text string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
	b.wait(text)
}

// wait waits until the page shows a text.
func (b *tab) wait(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.body.innerText.toLowerCase().includes(%s)`, quote(strings.ToLower(text))))
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(deadline))); err != nil {
		b.t.Fatalf("%s: %v; the page says:\n%.3000s", expression, err, b.text())
	}
}

func (b *tab) text() string { return get[string](b, `document.body.innerText`) }

func get[Out any](b *tab, expression string) (out Out) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &out))
	return out
}

func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(selector, chromedp.ByQuery))
}

// shows reports what the page must and must not show now.
func (b *tab) shows(texts ...string) {
	b.t.Helper()
	got := b.text()
	for _, text := range texts {
		if !strings.Contains(strings.ToLower(got), strings.ToLower(text)) {
			b.t.Errorf("the page does not show %q:\n%.3000s", text, got)
		}
	}
}

// commands checks that the command line knows each command that the page offers.
func (b *tab) commands() {
	b.t.Helper()
	for _, line := range get[[]string](b, `[...document.querySelectorAll("[data-command]")].map((e) => e.dataset.command)`) {
		out, err := exec.Command("sh", "-c", "set -- "+line+`; printf '%s\n' "$@"`).Output()
		if err != nil {
			b.t.Errorf("%s: %v", line, err)
			continue
		}
		words := strings.Split(strings.TrimSpace(string(out)), "\n")
		cmd, args, err := cli.NewRoot(cli.Deps{}).Find(words[1:])
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil && cmd.Args != nil {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		if err != nil || words[0] != "tutti" || !cmd.Runnable() || cmd.HasSubCommands() {
			b.t.Errorf("the command line does not know %s: %v", line, err)
		}
	}
}

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// shoot writes screenshots into the directory in UI_SHOTS: light and dark, wide and narrow.
func (b *tab) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("UI_SHOTS")
	if dir == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 400} {
			var image []byte
			b.do(
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				emulation.SetDeviceMetricsOverride(width, 900, 1, width < 500),
				chromedp.Evaluate(`new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))`, nil, awaits),
				chromedp.FullScreenshot(&image, 100),
			)
			file := filepath.Join(dir, fmt.Sprintf("%s-%s-%d.png", name, scheme, width))
			if err := os.WriteFile(file, image, 0o600); err != nil {
				b.t.Error(err)
			}
		}
	}
	b.do(emulation.ClearDeviceMetricsOverride(), emulation.SetEmulatedMedia())
}

func awaits(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// accessible runs axe-core, if AXE names its file (axe.min.js of the npm package axe-core).
func (b *tab) accessible() {
	b.t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		b.t.Log("not checked with axe-core: AXE does not name axe.min.js")
		return
	}
	source, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		var found string
		b.do(
			emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
			chromedp.Evaluate(string(source), nil, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithReturnByValue(false) }),
			chromedp.Evaluate(`axe.run(document).then((r) => r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.map((n) => n.target + " " + n.html).join(" | ")).join("\n"))`, &found, awaits),
		)
		if found != "" {
			b.t.Errorf("axe-core, %s:\n%s", scheme, found)
		}
	}
	b.do(emulation.SetEmulatedMedia())
}

// A stream is a scripted fleet/watch. Each viewer gets all frames from the beginning.
type stream struct {
	mu     sync.Mutex
	frames [][]byte
	more   chan struct{}
	ended  bool
	asked  int
}

func newStream(frames ...frame) *stream {
	s := &stream{more: make(chan struct{})}
	s.send(frames...)
	return s
}

// A frame is the frame of ADR 0042 as the page reads it.
type frame struct {
	Seq    int       `json:"seq"`
	At     time.Time `json:"at"`
	Reset  bool      `json:"reset,omitempty"`
	Whole  bool      `json:"whole,omitempty"`
	Views  []view    `json:"views,omitempty"`
	Gone   []string  `json:"gone,omitempty"`
	Cursor string    `json:"cursor"`
}

type view struct {
	Key  string `json:"key"`
	View any    `json:"view"`
}

func (s *stream) send(frames ...frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range frames {
		if f.At.IsZero() {
			f.At = time.Now()
		}
		raw, _ := json.Marshal(map[string]any{"item": f})
		s.frames = append(s.frames, append(raw, '\n'))
	}
	close(s.more)
	s.more = make(chan struct{})
}

// end ends the stream of every viewer, and refuses new ones until `begin` is called.
func (s *stream) end(ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = ended
	close(s.more)
	s.more = make(chan struct{})
}

func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	if s.ended {
		s.mu.Unlock()
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"code":"unavailable","message":"the server at https://tutti:8150 cannot be reached"}`))
		return
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	for at := 0; ; {
		s.mu.Lock()
		out, more, ended := bytes.Join(s.frames[at:], nil), s.more, s.ended
		at = len(s.frames)
		s.mu.Unlock()
		if ended {
			return
		}
		if _, err := w.Write(out); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}
