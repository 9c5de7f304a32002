package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/policy"
)

const (
	statusRounds = 20
	statusPause  = 200 * time.Millisecond // pause between two rounds, because people do not ask again at once
)

// simulatedRoot creates a root directory with a Puppet that has run once. All nodes read the same
// files.
func simulatedRoot(dir string) (string, error) {
	root := filepath.Join(dir, "root")
	for name, content := range map[string]string{
		"usr/bin/ruby": "#!/bin/sh\n", "usr/bin/puppet": "#!/bin/sh\n", "etc/puppet/puppet.conf": "[main]\nserver = puppet\n",
		"var/cache/puppet/public/last_run_summary.yaml": "---\nversion: {config: 1, puppet: 8.10.0}\nresources: {total: 120, failed: 0, changed: 1}\ntime: {total: 3.5, last_run: 1795287262}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", err
		}
		// all files are executable, because two of them are programs
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			return "", err
		}
	}
	return root, nil
}

// The function `shipped` returns the policy of an agent that has no policy file.
var shipped = sync.OnceValues(func() (*policy.Actions, error) {
	return policy.ParseActions("the shipped policy", policy.Shipped, "", "")
})

// The function `allow` decides according to this policy.
func allow(q policy.Question) (bool, string) {
	p, err := shipped()
	if err != nil {
		return false, err.Error()
	}
	return p.Decide(q)
}

// measureStatus measures the time until `tutti puppet status` has its last reply, once on an idle
// machine and once while other processes use every core. measureStatus also counts the nodes
// without a good answer.
func measureStatus(ctx context.Context, o options) ([]figure, error) {
	return withFleet(ctx, o, func(m *scaleMeasure, ctx context.Context) error {
		if err := m.server.start(ctx); err != nil {
			return err
		}
		if err := m.fleet.grow(ctx, m.server, 0, m.nodes); err != nil {
			return err
		}
		if err := sleep(ctx, settle); err != nil {
			return err
		}
		if err := m.statuses(ctx, "no CPU hog", 300); err != nil {
			return err
		}
		stop, err := hogs(runtime.NumCPU())
		if err != nil {
			return err
		}
		return errors.Join(m.statuses(ctx, fmt.Sprintf("%d CPU hogs", runtime.NumCPU()), 0), stop())
	})
}

func (m *scaleMeasure) statuses(ctx context.Context, when string, goal float64) error {
	var last, command []time.Duration
	lost := 0
	used, err := m.usage()
	if err != nil {
		return err
	}
	for range statusRounds {
		answers, began, slowest := 0, time.Now(), time.Duration(0)
		err := m.server.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteStatus}, func(all []api.NodeAnswer) error {
			slowest = time.Since(began)
			for _, a := range all {
				if a.Verdict == tutti.RemoteOK {
					answers++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		last, lost = append(last, slowest), lost+m.nodes-answers
		began = time.Now()
		cmd := exec.CommandContext(ctx, m.binary, "--operator", m.server.operator, "puppet", "status")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tutti puppet status: %w: %.500s", err, out)
		}
		command = append(command, time.Since(began))
		if err := sleep(ctx, statusPause); err != nil {
			return err
		}
	}
	server, agents, err := used()
	what := fmt.Sprintf("status of %d nodes, %s: ", m.nodes, when)
	m.add(what+"last reply, median", quantile(last, 0.5), "ms", goal)
	m.add(what+"last reply, best", quantile(last, 0), "ms", 0)
	m.add(what+"last reply, worst", quantile(last, 1), "ms", 0)
	m.add(what+"the command, median", quantile(command, 0.5), "ms", 0)
	m.add(what+"server CPU for each", float64(server.Milliseconds())/(2*statusRounds), "ms", 0)
	m.add(what+"agents CPU for each", float64(agents.Milliseconds())/(2*statusRounds), "ms", 0)
	m.figures = append(m.figures, figure{what + "without an answer", float64(lost), "nodes", 0.5})
	return err
}

// The function `hogs` starts processes that each keep one core busy.
func hogs(count int) (stop func() error, err error) {
	var all []*exec.Cmd
	stop = func() error {
		var errs []error
		for _, cmd := range all {
			errs = append(errs, cmd.Process.Kill())
			_ = cmd.Wait() // ended by us
		}
		return errors.Join(errs...)
	}
	for range count {
		cmd := exec.Command("sh", "-c", "while :; do :; done") //nolint:noctx // stop ends it
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stop())
		}
		all = append(all, cmd)
	}
	return stop, nil
}
