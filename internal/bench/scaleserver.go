package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	_ "net/http/pprof" // the import offers the server's profiles on loopback during a measurement
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/operator"
)

const (
	profileAddress = "127.0.0.1:18162"
	startDeadline  = time.Minute
	ticksPerSecond = 100 // clock ticks in /proc/PID/stat have the same length on every Linux
)

// serverProcess is the server in a separate process. In a separate process the server's memory and
// CPU can be measured, and kill -9 is possible.
type serverProcess struct {
	*httpapi.Client
	args     []string
	data     string
	operator string
	listen   string // the address for operators
	bus      string // the address for nodes
	cmd      *exec.Cmd
	reserved []func() // functions that release the reserved addresses
}

// newServerProcess creates a server's data directory below dir.
func newServerProcess(o options, dir string) (*serverProcess, error) {
	s := &serverProcess{data: filepath.Join(dir, "server"), operator: filepath.Join(dir, "operator")}
	s.args = []string{o.binary, "server", "--dir", s.data, "--socket", "-"}
	if o.profile != "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		s.args = []string{self, "-serve", s.data}
	}
	var addresses [2]string
	for i := range addresses {
		addr, release, err := bustest.ReserveAddress()
		if err != nil {
			return nil, err
		}
		addresses[i], s.reserved = addr, append(s.reserved, release)
	}
	s.listen, s.bus = addresses[0], addresses[1]
	err := app.InitServer(app.InitOptions{
		Dir: s.data, Host: "127.0.0.1", Listen: s.listen, Bus: s.bus, Operator: "bench", OperatorDir: s.operator,
	})
	if err != nil {
		return nil, err
	}
	s.Client, err = operator.Connect(operator.ConnectOptions{OperatorDir: s.operator})
	return s, err
}

// The method `start` starts the server and returns after it has answered an operator.
func (s *serverProcess) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	s.cmd = exec.Command(s.args[0], s.args[1:]...) //nolint:noctx // it ends by kill, and outlives this call
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for {
		_, err := s.ListJobs(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not serve: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The method `kill` ends the server with kill -9.
func (s *serverProcess) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // ended by us
		s.cmd = nil
	}
}

// The method `end` kills the server and releases its addresses.
func (s *serverProcess) end() {
	s.kill()
	for _, release := range s.reserved {
		release()
	}
}

// The method `resident` returns the server's VmRSS in KiB.
func (s *serverProcess) resident() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(raw), "VmRSS:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return strconv.ParseFloat(kib, 64)
}

// cpuOf returns the CPU time that a process has used, with a precision of ten milliseconds.
func cpuOf(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	at := strings.LastIndexByte(string(raw), ')') // the name of the process may contain any character
	fields := strings.Fields(string(raw[at+1:]))
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksPerSecond, err
}

// serveProfiled runs the server with its profiles on loopback.
func serveProfiled(ctx context.Context, data string) error {
	server, err := app.NewServer(app.ServerOptions{Dir: data, Socket: "-", Logger: quiet()})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	profiles := &http.Server{Addr: profileAddress, ReadHeaderTimeout: time.Second}
	group.Go(func() error { return server.Run(ctx) })
	group.Go(profiles.ListenAndServe)
	group.Go(func() error {
		<-ctx.Done()
		return errors.Join(context.Cause(ctx), profiles.Close())
	})
	return group.Wait()
}

// saveProfile writes one of the server's profiles to a file.
func saveProfile(ctx context.Context, name, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+profileAddress+"/debug/pprof/"+name, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = out.ReadFrom(resp.Body)
	return errors.Join(err, out.Close())
}
