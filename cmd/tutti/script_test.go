package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/pidfd"
)

// The scripts in script/cli run this program, with a fake Ruby.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tutti": main, "fakeruby": fakeRuby})
}

var update = flag.Bool("update", false, "write the golden parts of the scripts")

func TestScripts(t *testing.T) {
	testscript.Run(t, scripts("../../script/cli"))
}

// The function `scripts` returns the scripts of a directory, with all commands that they may use.
func scripts(dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		Setup:               setup,
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "until": until, "normal": normal, "last": last, "kill9": kill9, "expand": expand, "run": showRun, "browse": browse,
		},
	}
}

// The function `setup` gives a script two free ports and a root directory with a Puppet.
func setup(env *testscript.Env) error {
	ruby, err := exec.LookPath("fakeruby")
	if err != nil {
		return err
	}
	if err := fakePuppet(filepath.Join(env.WorkDir, "root"), ruby); err != nil {
		return err
	}
	for _, name := range []string{"LISTEN", "BUS"} {
		addr, release, err := bustest.ReserveAddress()
		if err != nil {
			return err
		}
		env.Defer(release)
		env.Setenv(name, addr)
	}
	env.Setenv("TUTTI_OPERATOR", filepath.Join(env.WorkDir, "operator"))
	env.Setenv("TZ", "UTC")
	return nil
}

// fakePuppet creates a root directory with a fake Puppet in it.
func fakePuppet(root, ruby string) error {
	bin := filepath.Join(root, "usr/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"ruby", "puppet"} {
		script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", ruby)
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// exits CODE COMMAND...: runs a command, which must end with that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// untilDeadline limits the time of a hanging test. untilDeadline is long, because the machine may
// be busy.
const untilDeadline = 3 * time.Minute

// until [PATTERN] COMMAND...: repeats the command. `until` ends when the command succeeds and the
// output matches. The pattern is written between slashes. Nothing signals that the state has
// changed, so `until` repeats the command.
func until(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile("")
	if p := args[0]; strings.HasPrefix(p, "/") && strings.HasSuffix(p, "/") {
		pattern, args = regexp.MustCompile(strings.Trim(p, "/")), args[1:]
	}
	for end := time.Now().Add(untilDeadline); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within %s: %v", untilDeadline, err)
		}
	}
}

// These patterns match text that differs between runs. The second field of a row replaces the
// matching text.
var variable = []struct{ pattern, is string }{
	{`\d\d:\d\d:\d\d  `, "TIME  "},
	{`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, "DATE"},
	{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "RUN"},
	{`sha256:[0-9a-f]{64}`, "DIGEST"},
	{`sha256:[0-9a-f]{12}`, "DIGEST"},
	{`code [0-9a-f]{12}`, "code DIGEST"},
	{`(\d+h\d\dm|(\d+m)?\d+(\.\d)?s) ago( |$)*`, "AGO "},
	{`\d+h\d\dm|\d+m\d\ds|\d+\.\ds|\d+m?s\b`, "TOOK"},
	{`U[A-Z2-7]{55}`, "KEY"},
	{`(?m)^puppet    \S+$`, "puppet    VERSION"}, // the output has `-` before the node has reported its version
	{`(BEGAN|SET) +`, "$1  "},                    // the width of this heading depends on the column below it
	{`TOOK {3,}`, "TOOK  "},                      // on a slow machine one duration may have more digits than the others
	{` +\n`, "\n"},
}

// normal FILE: writes the last standard output to FILE, after replacing the variable texts.
func normal(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	for _, v := range variable {
		text = regexp.MustCompile(v.pattern).ReplaceAllString(text, v.is)
	}
	text = strings.ReplaceAll(text, ts.Getenv("WORK"), "$WORK")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// last FILE: writes the last line of the last standard output to FILE.
func last(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(lines[len(lines)-1]+"\n"), 0o600))
}

// run show FILE [FLAG]...: shows the run whose id is in the file.
func showRun(ts *testscript.TestScript, _ bool, args []string) {
	id := strings.TrimSpace(ts.ReadFile(args[1]))
	ts.Check(ts.Exec("tutti", append([]string{"run", "show", id}, args[2:]...)...))
}

// expand FILE: replaces WORK in the file by the script's directory.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "WORK", ts.Getenv("WORK"))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// kill9 FILE: kills the process whose id is in the file, and waits for its end.
func kill9(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	p, err := os.FindProcess(pid)
	ts.Check(err)
	ts.Check(p.Kill())
	ctx, cancel := context.WithTimeoutCause(context.Background(), untilDeadline, fmt.Errorf("process %d does not end", pid))
	defer cancel()
	ts.Check(pidfd.Wait(ctx, pid))
}
