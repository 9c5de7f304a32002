package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/machine"
)

const startTimes = 9

// measureStart measures the time of an agent process from its exec to READY=1. The result is the
// median of several starts.
func measureStart(ctx context.Context, o options) ([]figure, error) {
	var times []time.Duration
	err := withServer(ctx, func(ctx context.Context, s *localServer) error {
		token, err := s.CreateToken(ctx, api.CreateToken{Name: "node"})
		if err != nil {
			return err
		}
		state := filepath.Join(s.dir, "node")
		if _, err := machine.Join(ctx, machine.JoinOptions{Dir: state, Token: token.Text}); err != nil {
			return err
		}
		for range startTimes {
			took, err := startOnce(ctx, o.binary, state, filepath.Join(s.dir, "notify"))
			if err != nil {
				return err
			}
			times = append(times, took)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []figure{{"agent start to ready, median", quantile(times, 0.5), "ms", 200}}, nil
}

func startOnce(ctx context.Context, binary, state, notify string) (time.Duration, error) {
	_ = os.Remove(notify)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	cmd := exec.CommandContext(ctx, binary, "agent", "--dir", state)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_ = conn.SetReadDeadline(began.Add(startDeadline))
	err = awaitReady(conn)
	took := time.Since(began)
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // ended by us
	return took, err
}

// awaitReady reads the messages of a process to systemd (sd_notify(3)) until the process reports
// that it is ready. A message may have several lines. If the agent connects at once, it first
// sends a message about the connection, and only then READY=1.
func awaitReady(conn io.Reader) error {
	var said []string
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return fmt.Errorf("the agent was not ready, it said %q: %w", said, err)
		}
		lines := strings.Split(string(buf[:n]), "\n")
		if slices.Contains(lines, "READY=1") {
			return nil
		}
		said = append(said, lines...)
	}
}
