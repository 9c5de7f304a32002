package outward_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/outward"
	"github.com/tutti-project/tutti/internal/past"
)

// source is a log in memory.
type source struct {
	mu      sync.Mutex
	epoch   uint64
	runs    []past.Ended
	gone    map[tutti.Digest]bool
	changed chan struct{}
}

func newSource() *source {
	return &source{epoch: 1, gone: map[tutti.Digest]bool{}, changed: make(chan struct{})}
}

func (s *source) end(ordered bool, change ...func(*past.Ended)) past.Ended {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := uint64(10)
	if n := len(s.runs); n > 0 {
		seq = s.runs[n-1].Seq + 3
	}
	e := past.Ended{Seq: seq, At: time.Date(2026, 11, 29, 0, 0, int(seq), 0, time.UTC), Run: tutti.RunID(fmt.Sprint(seq)), Node: "web-01", Report: tutti.Digest(fmt.Sprint(seq)), Ordered: ordered}
	for _, c := range change {
		c(&e)
	}
	s.runs = append(s.runs, e)
	close(s.changed)
	s.changed = make(chan struct{})
	return e
}

// The method `facts` lets a node send facts.
func (s *source) facts(digest tutti.Digest) past.Ended {
	return s.end(true, func(e *past.Ended) { e.Report, e.Facts, e.Environment = "", digest, "production" })
}

func (s *source) Place(_ context.Context, after tutti.Position) (tutti.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := uint64(1)
	if n := len(s.runs); n > 0 {
		at = s.runs[n-1].Seq
	}
	if after.Seq == 0 || after.Seq > at {
		after.Seq = at
	}
	after.Epoch.Number = s.epoch
	return after, nil
}

func (s *source) Read(_ context.Context, after uint64, yield func(past.Ended) error) (uint64, error) {
	s.mu.Lock()
	runs := slices.Clone(s.runs)
	s.mu.Unlock()
	for _, e := range runs {
		if e.Seq > after {
			if err := yield(e); err != nil {
				return after, err
			}
			after = e.Seq
		}
	}
	return after, nil
}

func (s *source) Appended() <-chan struct{} { s.mu.Lock(); defer s.mu.Unlock(); return s.changed }

func (s *source) Report(_ context.Context, d tutti.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[d] {
		return nil, tutti.Errorf(tutti.CodeNotFound, "gone")
	}
	if strings.HasPrefix(string(d), "facts") {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write([]byte(`{"kernel":"Linux"}`)) // a buffer takes everything
		err := w.Close()
		return out.Bytes(), err
	}
	return fmt.Appendf(nil, `{"host":"x","time":"2026-11-29T00:00:00Z","environment":"production","transaction_uuid":%q}`, string(d)), nil
}

// fake is a destination that counts.
type fake struct {
	*httptest.Server
	got    chan string // each report that was accepted
	mu     sync.Mutex
	answer func(run string) (int, string)
}

func ok(string) (int, string) { return 200, `{"uuid":"1"}` }

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{got: make(chan string, 1000), answer: ok}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var said struct {
			Run  string `json:"transaction_uuid"`
			Name string `json:"certname"`
		}
		if json.Unmarshal(raw, &said) != nil || said.Name != "web-01" || r.URL.Query().Get("certname") != "web-01" || r.URL.Path != "/pdb/cmd/v1" {
			t.Errorf("%s: %s", r.URL, raw)
		}
		f.mu.Lock()
		status, text := f.answer(said.Run)
		f.mu.Unlock()
		if status/100 == 3 {
			w.Header().Set("Location", "http://elsewhere.example.org/")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		if status == 200 && text != "no" {
			f.got <- said.Run
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) say(answer func(string) (int, string)) { f.mu.Lock(); f.answer = answer; f.mu.Unlock() }

// rig runs a sender.
type rig struct {
	t       *testing.T
	dir     string
	source  *source
	to      outward.Destination
	pauses  chan int // each pause after a failure; the sender goes on when the test has taken it
	sender  *outward.Sender
	stop    context.CancelFunc
	stopped chan struct{}
}

func newRig(t *testing.T, f *fake) *rig {
	t.Helper()
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, dir: t.TempDir(), source: newSource(), to: outward.Destination{Name: "pdb", Kind: outward.PuppetDB, URL: u, Timeout: time.Minute}, pauses: make(chan int)}
}

// The method `start` begins to send, and returns when the sender knows its position.
func (r *rig) start() {
	r.t.Helper()
	s, err := outward.New(r.to, outward.Options{
		Dir: r.dir, Source: r.source, Producer: "tutti", Logger: slog.New(slog.DiscardHandler), Look: time.Millisecond,
		Pause: func(ctx context.Context, n int) {
			select {
			case r.pauses <- n:
			case <-ctx.Done():
			}
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.sender, r.stop, r.stopped = s, cancel, make(chan struct{})
	go func() { defer close(r.stopped); s.Run(ctx) }()
	r.t.Cleanup(r.end)
	r.until(func(s outward.Status) bool { return s.Cursor.Epoch.Number == r.source.epoch })
}

func (r *rig) end() { r.stop(); <-r.stopped }

func (r *rig) until(is func(outward.Status) bool) outward.Status {
	r.t.Helper()
	for r.t.Context().Err() == nil {
		changed := r.sender.Changed()
		if s := r.sender.Status(); is(s) {
			return s
		}
		select {
		case <-changed:
		case <-r.t.Context().Done():
		}
	}
	r.t.Fatal("the test has ended")
	return outward.Status{}
}

func (r *rig) sent(f *fake, want ...past.Ended) {
	r.t.Helper()
	for _, e := range want {
		if got := <-f.got; got != string(e.Run) {
			r.t.Errorf("got run %s, want %s", got, e.Run)
		}
	}
}

// TestEachReportOnce checks that each report arrives once, in order, also after restarts and while the destination is away.
func TestEachReportOnce(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.source.end(true) // before the first start: it is not sent
	r.start()
	a := r.source.end(true)
	r.source.end(false) // a run of `puppet agent`
	b := r.source.end(true)
	r.sent(f, a, b)
	r.until(func(s outward.Status) bool { return s.Sent == 2 && s.Waiting == 0 })
	r.end()
	c := r.source.end(true)
	f.say(func(string) (int, string) { return 503, "away" })
	r.start()
	<-r.pauses
	d := r.source.end(true)
	<-r.pauses
	s := r.until(func(s outward.Status) bool { return s.Waiting == 2 })
	if !strings.Contains(s.Error, "503 Service Unavailable: away") || s.Since.IsZero() {
		t.Errorf("%+v", s)
	}
	r.end()
	f.say(ok)
	r.start()
	r.sent(f, c, d)
	r.until(func(s outward.Status) bool { return s.Sent == 4 && s.Waiting == 0 && s.Error == "" })
	r.end()
	if n := len(f.got); n != 0 {
		t.Errorf("%d reports were sent twice", n)
	}
}

// TestFactsGoOut checks that PuppetDB gets facts between reports, that facts do not count as reports, and that facts that
// are refused, or that later facts have replaced, do not stop anything.
func TestFactsGoOut(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.to.Facts = true
	r.start()
	f.say(func(run string) (int, string) { // facts have no run
		if run == "" {
			return 400, "bad facts"
		}
		return ok(run)
	})
	one := r.source.facts("facts held")
	a := r.source.end(true)
	r.sent(f, a)
	r.until(func(s outward.Status) bool {
		return s.Sent == 1 && s.Waiting == 0 && s.Dropped == 0 && s.Parked == 0 && s.Facts == 0 && s.Cursor.Seq > one.Seq
	})
	f.say(ok)
	r.source.facts("facts held")
	if got := <-f.got; got != "" {
		t.Errorf("got run %s in place of facts", got)
	}
	gone := r.source.facts("facts replaced")
	r.source.gone[gone.Facts] = true
	b := r.source.end(true)
	r.sent(f, b)
	r.until(func(s outward.Status) bool {
		return s.Sent == 2 && s.Waiting == 0 && s.Dropped == 0 && s.Facts == 1 && s.Error == ""
	})
	r.end()

	r.to.Facts = false
	r.start()
	r.source.facts("facts unwanted")
	c := r.source.end(true)
	r.sent(f, c)
	r.until(func(s outward.Status) bool { return s.Sent == 3 && s.Facts == 1 })
}

// TestAgentRuns checks that a destination gets runs of `puppet agent` and foreign runs if it wants them.
func TestAgentRuns(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.to.AgentRuns = true
	r.start()
	r.sent(f, r.source.end(false), r.source.end(true))
}

// TestARefusedReportIsParked checks that a report which the destination refuses for good does not block the next
// ones, and that a person can send it again.
func TestARefusedReportIsParked(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.start()
	var bad past.Ended
	f.say(func(string) (int, string) { return 422, "no such\x1b[31m host" })
	bad = r.source.end(true)
	for parked := false; !parked; {
		changed := r.sender.Changed()
		if s := r.sender.Status(); s.Parked == 1 && s.Waiting == 0 && s.Error == "" {
			parked = true
			continue
		}
		select {
		case <-changed:
		case <-r.pauses:
			t.Fatalf("the report blocks the next ones: %+v", r.sender.Status())
		}
	}
	f.say(ok)
	r.sent(f, r.source.end(true))
	_, parked, err := outward.ReadStatus(r.dir, "pdb")
	if err != nil || len(parked) != 1 || parked[0].Run != bad.Run || !strings.Contains(parked[0].Reason, "422") || strings.Contains(parked[0].Reason, "\x1b") {
		t.Fatalf("%+v, %v", parked, err)
	}
	if n, err := outward.Retry(r.dir, "pdb"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.sent(f, bad)
	r.until(func(s outward.Status) bool { return s.Parked == 0 && s.Sent == 2 })
}

// TestAnswersOfAWrongConfiguration checks that no report is parked or lost if the address or the credentials are wrong.
func TestAnswersOfAWrongConfiguration(t *testing.T) {
	for reason, answer := range map[string]struct {
		status int
		text   string
		want   string
	}{
		"no permission":                 {403, "", "403 Forbidden"},
		"another path":                  {404, "", "404 Not Found"},
		"too many":                      {429, "", "429"},
		"a redirect":                    {302, "", "a redirect to http://elsewhere.example.org"},
		"an error with a good status":   {200, "no", "not an answer of PuppetDB"},
		"the destination is overloaded": {500, "", "500"},
	} {
		t.Run(reason, func(t *testing.T) {
			f := newFake(t)
			f.say(func(string) (int, string) { return answer.status, answer.text })
			r := newRig(t, f)
			r.start()
			e := r.source.end(true)
			for paused := false; !paused; {
				changed := r.sender.Changed()
				if s := r.sender.Status(); s.Parked != 0 || s.Sent != 0 {
					t.Fatalf("no report waits: %+v", s)
				}
				select {
				case <-changed:
				case <-r.pauses:
					paused = true
				}
			}
			s := r.sender.Status()
			if s.Parked != 0 || s.Sent != 0 || s.Waiting != 1 || !strings.Contains(s.Error, answer.want) {
				t.Errorf("%+v", s)
			}
			f.say(ok)
			r.sent(f, e)
		})
	}
}

// TestRetentionIsCounted checks that a report which retention removed before it was sent counts as dropped: its blob, its
// event, or its run.
func TestRetentionIsCounted(t *testing.T) {
	f := newFake(t)
	f.say(func(string) (int, string) { return 503, "" })
	r := newRig(t, f)
	r.start()
	var all []past.Ended
	for range 4 {
		all = append(all, r.source.end(true))
	}
	for r.sender.Status().Waiting != 4 {
		<-r.pauses
	}
	r.end()
	r.source.mu.Lock()
	r.source.runs = slices.DeleteFunc(r.source.runs, func(e past.Ended) bool { return e.Seq == all[0].Seq }) // the event
	r.source.gone[all[1].Report] = true                                                                      // the blob
	r.source.runs[1].Node, r.source.runs[1].Ordered = "", false                                              // the run
	r.source.mu.Unlock()
	f.say(ok)
	r.start()
	r.sent(f, all[3])
	if s := r.until(func(s outward.Status) bool { return s.Waiting == 0 }); s.Dropped != 3 || s.Sent != 1 {
		t.Errorf("%+v", s)
	}
}

// TestARestoredLog checks that a cursor ahead of the log goes back.
func TestARestoredLog(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.start()
	a, b := r.source.end(true), r.source.end(true)
	r.sent(f, a, b)
	r.until(func(s outward.Status) bool { return s.Sent == 2 })
	r.end()
	r.source.runs, r.source.epoch = r.source.runs[:1], 2
	r.start()
	again := r.source.end(true)
	if again.Seq != b.Seq {
		t.Fatal(again)
	}
	r.sent(f, again)
	if s := r.until(func(s outward.Status) bool { return s.Sent == 3 }); s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// A second start after a kill between the answer and the write sends only the report in flight again, with the same bytes.
func TestAKillRepeatsOneReport(t *testing.T) {
	f := newFake(t)
	r := newRig(t, f)
	r.start()
	a := r.source.end(true)
	r.sent(f, a)
	r.until(func(s outward.Status) bool { return s.Sent == 1 })
	r.end()
	file := filepath.Join(r.dir, "reports-out", "pdb.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	b := r.source.end(true)
	r.sent(f, b)
	r.until(func(s outward.Status) bool { return s.Sent == 2 })
	r.end()
	if err := os.WriteFile(file, before, 0o600); err != nil { // as if the process had been killed before the write
		t.Fatal(err)
	}
	r.start()
	r.sent(f, b, r.source.end(true))
}

// TestTwoDestinations checks that a destination that hangs does not stop another one.
func TestTwoDestinations(t *testing.T) {
	hang := make(chan struct{})
	f, g := newFake(t), newFake(t)
	f.say(func(string) (int, string) { <-hang; return 200, `{"uuid":"1"}` })
	r := newRig(t, f)
	q := newRig(t, g)
	q.dir, q.source, q.to.Name = r.dir, r.source, "other"
	r.start()
	q.start()
	e := r.source.end(true)
	q.sent(g, e)
	q.until(func(s outward.Status) bool { return s.Sent == 1 })
	close(hang)
	r.sent(f, e)
}

// TestADeadline checks that a destination that never answers fails after the deadline of a request.
func TestADeadline(t *testing.T) {
	f := newFake(t)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	f.say(func(string) (int, string) { <-hang; return 200, "" })
	r := newRig(t, f)
	r.to.Timeout = time.Millisecond
	r.start()
	r.source.end(true)
	<-r.pauses
	if s := r.sender.Status(); s.Waiting != 1 || !strings.Contains(s.Error, "exceeded") {
		t.Errorf("%+v", s)
	}
}

// TestAConfiguration checks each mistake in the file.
func TestAConfiguration(t *testing.T) {
	good := "destinations:\n  pdb:\n    puppetdb: https://puppetdb.example.org:8081\n    certificate: /etc/c.pem\n    key: /etc/k.pem\n    ca: /etc/ca.pem\n    timeout: 5s\n  hook:\n    http: http://localhost:99/reports?x=y\n    agent_runs: true\n"
	got, err := outward.ParseConfig("reports.yaml", []byte(good))
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
	}
	got[0].URL, got[1].URL = nil, nil
	if diff := cmp.Diff([]outward.Destination{
		{Name: "pdb", Kind: "puppetdb", Facts: true, Timeout: 5 * time.Second, Files: outward.Files{Certificate: "/etc/c.pem", Key: "/etc/k.pem", CA: "/etc/ca.pem"}},
		{Name: "hook", Kind: "http", Format: "yaml", Timeout: time.Minute, AgentRuns: true},
	}, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"": "reports.yaml:1: the file is empty", "a: [": "reports.yaml:1: this is no YAML: did not find", "a: 1\n\tb: 2": "reports.yaml:2: this is no YAML: found a tab", "x": "reports.yaml:1: expected a mapping", "destinations: {}": "reports.yaml:1: no destination",
		"other: {}":              `reports.yaml:1: unknown key "other" (keys: destinations)`,
		"destinations:\n  A: {}": `reports.yaml:2: destination "A": a name has`,
		"destinations:\n  a: {}": `reports.yaml:2: destination "a" has no address`,
		"destinations:\n  a:\n    http: https://x\n    foreman: https://x":    `reports.yaml:4: destination "a" is both http and foreman`,
		"destinations:\n  a:\n    http: http://x.example.org":                 `reports.yaml:3: http to "x.example.org" would send reports in clear text`,
		"destinations:\n  a:\n    http: https://u:p@x":                        `reports.yaml:3: the address must not have a password`,
		"destinations:\n  a:\n    http: ftp://x":                              `reports.yaml:3: the address must be a URL`,
		"destinations:\n  a:\n    http: https://x\n    key: k":                `reports.yaml:4: key must be the absolute path`,
		"destinations:\n  a:\n    http: https://x\n    key: /k":               `reports.yaml:2: destination "a": certificate and key belong together`,
		"destinations:\n  a:\n    puppetdb: https://x\n    format: json":      `reports.yaml:2: destination "a": only http has a format`,
		"destinations:\n  a:\n    http: https://x\n    format: xml":           `reports.yaml:4: format "xml" must be yaml or json`,
		"destinations:\n  a:\n    http: https://x\n    timeout: 1h":           `reports.yaml:4: timeout "1h" must be`,
		"destinations:\n  a:\n    http: https://x\n    agent_runs: maybe":     `reports.yaml:4: agent_runs "maybe" must be true or false`,
		"destinations:\n  a:\n    http: https://x\n    facts: true":           `reports.yaml:2: destination "a": only puppetdb gets facts`,
		"destinations:\n  a:\n    puppetdb: https://x\n    facts: 1":          `reports.yaml:4: facts "1" must be true or false`,
		"destinations:\n  a:\n    http: https://x\n  a:\n    http: https://x": `reports.yaml:4: destination "a" is there twice`,
		"destinations:\n  a:\n    http: https://x\n    http: https://x":       `reports.yaml:4: http is there twice`,
		"destinations:\n  a:\n    http: http://localhost\n    ca: /x":         `reports.yaml:2: destination "a": with http:`,
		"destinations:\n  a:\n    http: https://x\n---\n":                     `a second YAML document`,
		"destinations:\n  a:\n    http: https://x:99999":                      `reports.yaml:3: the address has the port 99999`,
		"# nothing": "reports.yaml:1: the file is empty", "---\n": "reports.yaml:2: expected a mapping",
	} {
		if _, err := outward.ParseConfig("reports.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
