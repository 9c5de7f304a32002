package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestAUsedCodeIsAlwaysSaid: other refusals cannot silence the words about a stolen code, and a flood is counted.
func TestAUsedCodeIsAlwaysSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := &refusals{out: &out}
		flood := func(n int) {
			for range n {
				r.add(errors.New("junk"), false)
			}
		}
		said := func(what string, junk int, words ...string) {
			t.Helper()
			r.mu.Lock() // a timer may print
			defer r.mu.Unlock()
			if got := strings.Count(out.String(), "junk"); got != junk {
				t.Errorf("%s: %d lines of junk, want %d", what, got, junk)
			}
			for _, word := range words {
				if strings.Count(out.String(), word) != 1 {
					t.Errorf("%s: not once %q:\n%s", what, word, out.String())
				}
			}
			out.Reset()
		}
		flood(1000)
		for range 100 {
			r.add(errors.New("used before"), true)
		}
		said("a flood", mostRefusals, "used before")
		time.Sleep(stolenPeriod)
		r.add(errors.New("used before"), true)
		said("a second later", 0, "used before")
		time.Sleep(refusalPeriod)
		synctest.Wait()
		said("a minute later", 0, "refused more requests: 1079") // 980 of the junk and 99 of the used code
		flood(mostRefusals + 1)
		said("the next flood", mostRefusals)
		r.flush()
		said("the end", 0, "refused more requests: 1\n")
	})
}

// TestABrokenPipeDoesNotEndThePage starts this test again as the command, with an output that nobody reads.
func TestABrokenPipeDoesNotEndThePage(t *testing.T) {
	const variable = "TUTTI_TEST_BROKEN_PIPE"
	if file := os.Getenv(variable); file != "" {
		root := NewRoot(Deps{OpenUI: func(_ context.Context, _ Connection, in UI) error {
			in.Opened(UIOpened{URL: "http://127.0.0.1:1/ui/"})
			in.Refused(errors.New("junk"), false)
			return os.WriteFile(file, nil, 0o600)
		}})
		root.SetArgs([]string{"ui"})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer writer.Close()
	file := filepath.Join(t.TempDir(), "still-here")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestABrokenPipeDoesNotEndThePage$")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), variable+"="+file), writer, writer
	err = cmd.Run() // the test's own output breaks afterwards, too
	if _, missing := os.Stat(file); missing != nil {
		t.Errorf("the command ended: %v", err)
	}
}

// TestTheTerminalGoes: the command ends as with Ctrl-C, so it removes its file.
func TestTheTerminalGoes(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("nohup runs this test")
	}
	removed := false
	root := NewRoot(Deps{OpenUI: func(ctx context.Context, _ Connection, _ UI) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		<-ctx.Done()
		removed = true
		return nil
	}})
	root.SetArgs([]string{"ui"})
	if err := root.ExecuteContext(t.Context()); err != nil || !removed {
		t.Error(err)
	}
}
