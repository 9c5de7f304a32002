package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stage is a step of a check. Stages of one lane run one after another. The lanes run at
// the same time, and each keeps about one core busy.
type stage struct {
	name  string
	lane  string
	after []string // the stage waits until these stages have succeeded
	run   func(ctx context.Context, s *sink) error
}

// sink gets the output and the findings of a stage.
type sink struct {
	stage  string
	log    io.Writer // the stage's log file
	report *report
}

// After the signal to end, a command may take the time `grace` to remove its labs.
const grace = 2 * time.Minute

// The method `command` runs a command in its own process group and calls the function
// `line` with each line of its output. The output is written to the stage's log.
func (s *sink) command(ctx context.Context, env []string, line func(string), args ...string) error {
	fmt.Fprintf(s.log, "$ %s %s\n", strings.Join(env, " "), strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace
	split := &lineWriter{line: func(text string) {
		fmt.Fprintln(s.log, text)
		if line != nil {
			line(text)
		}
	}}
	cmd.Stdout, cmd.Stderr = split, split
	err := cmd.Run()
	split.flush()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args[:min(len(args), 4)], " "), err)
	}
	return nil
}

// lineWriter calls the function `line` for each line that somebody writes to it.
type lineWriter struct {
	line func(string)
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		text, rest, ok := strings.Cut(string(w.rest), "\n")
		if !ok {
			return len(p), nil
		}
		w.line(text)
		w.rest = []byte(rest)
	}
}

func (w *lineWriter) flush() {
	if len(w.rest) > 0 {
		w.line(string(w.rest))
		w.rest = nil
	}
}

// runAll runs all stages. The stages of a lane run in their order.
func (r *report) runAll(ctx context.Context, all []stage) {
	done := map[string]chan struct{}{}
	lanes := map[string][]stage{}
	for _, s := range all {
		done[s.name] = make(chan struct{})
		lanes[s.lane] = append(lanes[s.lane], s)
	}
	var wait sync.WaitGroup
	for _, lane := range lanes {
		wait.Go(func() {
			for _, s := range lane {
				r.runStage(ctx, s, done)
				close(done[s.name])
			}
		})
	}
	wait.Wait()
}

// runStage waits for the stages that this stage needs, and then runs it. If one of those
// stages failed, runStage fails without running the stage.
func (r *report) runStage(ctx context.Context, s stage, done map[string]chan struct{}) {
	for _, name := range s.after {
		if ended, ok := done[name]; ok {
			<-ended
			if r.failed(name) {
				r.stageEnded(s.name, 0, fmt.Errorf("not run: stage %s failed", name))
				return
			}
		}
	}
	if ctx.Err() != nil {
		r.stageEnded(s.name, 0, ctx.Err())
		return
	}
	log, err := os.Create(filepath.Join(logDir, s.name+".log"))
	if err != nil {
		r.stageEnded(s.name, 0, err)
		return
	}
	defer log.Close()
	r.say("begin %s", s.name)
	start := time.Now()
	err = s.run(ctx, &sink{stage: s.name, log: log, report: r})
	r.stageEnded(s.name, time.Since(start), err)
}
