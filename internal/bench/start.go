package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/app"
)

const startTimes = 9

// measureStart measures an agent process from its exec to READY=1, the median
// of several starts.
func measureStart(ctx context.Context, o options) ([]figure, error) {
	var times []time.Duration
	err := withServer(ctx, func(ctx context.Context, s *localServer) error {
		token, err := s.CreateToken(ctx, tutti.CreateToken{Name: "node"})
		if err != nil {
			return err
		}
		state := filepath.Join(s.dir, "node")
		if _, err := app.Join(ctx, app.JoinOptions{Dir: state, Token: token.Text}); err != nil {
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
	_ = conn.SetReadDeadline(began.Add(10 * time.Second))
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	took := time.Since(began)
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // ended by us
	if err != nil || !strings.HasPrefix(string(buf[:n]), "READY=1") {
		return 0, fmt.Errorf("the agent was not ready: %q, %w", buf[:n], err)
	}
	return took, nil
}
