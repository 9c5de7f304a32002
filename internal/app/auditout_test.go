package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/servertest"
)

// brokenSink returns an error at its n-th line.
type brokenSink struct {
	breaks *int
	lines  *[]string
	closed func()
}

var errSink = errors.New("the sink is away")

func (s brokenSink) Write(line []byte) error {
	if *s.breaks--; *s.breaks == 0 {
		return errSink
	}
	*s.lines = append(*s.lines, string(line))
	return nil
}

func (s brokenSink) Close() error { s.closed(); return nil }

// TestAnAuditFileHasWholeLines checks that an incomplete line is removed. A file that does not consist of lines is
// refused or left alone.
func TestAnAuditFileHasWholeLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trail")
	for before, want := range map[string]string{
		"":                         "{}\n",
		"{\"seq\":1}\n":            "{\"seq\":1}\n{}\n",
		"{\"seq\":1}\n{\"seq\":2,": "{\"seq\":1}\n{}\n",
		"{\"se":                    "{}\n",
	} {
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		sink, err := openAuditFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sink.Write([]byte("{}")), sink.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("behind %q: %q, %v; want %q", before, got, err, want)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{pipe, "/dev/null", t.TempDir()} {
		if _, err := openAuditFile(other); err == nil {
			t.Errorf("%s is taken for a file", other)
		}
	}
}

// TestTheAuditTrailIsTold uses a sink that returns an error at some line. The server must send each act in order.
// After the error, the server must send again the acts that it sent before the error. The trail contains no values,
// and no acts from before its beginning.
func TestTheAuditTrailIsTold(t *testing.T) {
	for breaks := range 4 {
		f := servertest.Start(t)
		set := func(n int) {
			t.Helper()
			if err := f.SetValue(servertest.Operator(), fmt.Sprintf("shared/%d", n), []byte(`"canary"`)); err != nil {
				t.Fatal(err)
			}
		}
		set(0)
		state := filepath.Join(t.TempDir(), "state")
		at, err := json.Marshal(f.Position())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(state, at, 0o600); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			set(n + 1)
		}
		var lines []string
		left := breaks
		tell := func() error {
			ctx, cancel := context.WithCancelCause(t.Context())
			open := func() (auditSink, error) {
				return brokenSink{&left, &lines, func() { cancel(context.Canceled) }}, nil
			}
			return auditOut{core: f.Server, state: state, log: slog.New(slog.DiscardHandler), open: open}.tell(ctx)
		}
		if err := tell(); !errors.Is(err, errSink) && breaks > 0 || errors.Is(err, errSink) && breaks == 0 {
			t.Fatalf("it breaks at line %d: %v", breaks, err)
		}
		want := []string{"set value shared/1", "set value shared/2", "set value shared/3"}
		if breaks > 0 {
			want = slices.Concat(want[:breaks-1], want)
			if err := tell(); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		var told []string
		for _, line := range lines {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprint(l["what"]))
			if len(l) != 5 || l["who"] != "operator:ada" || l["link"] == "" {
				t.Errorf("a line has seq, at, who, what and link; this one: %s", line)
			}
		}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("it breaks at line %d: -want +told\n%s", breaks, diff)
		}
	}
}
