package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/app"
)

const startTimes = 9

// measureStart measures an agent process from its exec to READY=1, the median
// of several starts.
func measureStart(ctx context.Context, binary string) ([]figure, error) {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	client, err := startServer(ctx, &parts, dir)
	if err != nil {
		return nil, err
	}
	token, err := client.CreateToken(ctx, tutti.CreateToken{Name: "node"})
	if err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "node")
	if _, err := app.Join(ctx, app.JoinOptions{Dir: state, Token: token.Text}); err != nil {
		return nil, err
	}
	var times []time.Duration
	for range startTimes {
		took, err := startOnce(ctx, binary, state, filepath.Join(dir, "notify"))
		if err != nil {
			return nil, err
		}
		times = append(times, took)
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
	if err != nil || string(buf[:n]) != "READY=1" {
		return 0, fmt.Errorf("the agent was not ready: %q, %w", buf[:n], err)
	}
	return took, nil
}
