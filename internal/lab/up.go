package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
)

// Running is a lab that is running.
type Running struct {
	Name   string
	Domain string
	Subnet netip.Prefix
	// the outer machine's address on the lab's network. Hosts know the outer machine as tutti-server
	Outer netip.Addr
	Dir   string  // directory for files that belong to the lab
	Hosts []*Host // hosts in the order of the lab file
}

// Host returns the host with this name. The name may be any of the host's names.
func (r *Running) Host(name string) (*Host, error) {
	var names []string
	for _, h := range r.Hosts {
		names = append(names, h.Name)
		if h.Name == name || slices.Contains(h.Names, name) {
			return h, nil
		}
	}
	return nil, tutti.Errorf(tutti.CodeNotFound, "no host %q in lab %q: it has %s", name, r.Name, strings.Join(names, ", "))
}

// lockFile is locked while a process creates or removes a lab. Without the lock, two processes could
// choose the same subnet, or change the kernel's settings at the same time.
const lockFile = runDir + "/lock"

// Up creates the lab and returns when every host is running. If Up fails or ctx ends, Up removes everything that it
// has created. If a lab with that name exists, Up returns an error.
func (m Machine) Up(ctx context.Context, spec Spec) (*Running, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	bases, err := m.Bases(ctx, spec)
	if err != nil {
		return nil, err
	}
	lock, err := m.lock(ctx, lockFile)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	x := commands{lock: lock}
	s, err := m.plan(ctx, x, spec, bases)
	if err != nil {
		return nil, err
	}
	if err := s.save(); err != nil {
		return nil, fmt.Errorf("state of lab %q: %w", s.Name, err)
	}
	if err := m.make(ctx, x, s, spec); err != nil {
		return nil, errors.Join(err, s.remove(context.WithoutCancel(ctx), x))
	}
	return m.running(s), nil
}

// Bases returns the directories of all bases that the lab's hosts need, by digest. Bases builds missing bases in
// parallel, because dpkg uses only one core.
func (m Machine) Bases(ctx context.Context, spec Spec) (map[string]string, error) {
	m.Mirror = orDefault(m.Mirror, spec.Mirror)
	wanted := map[string]Definition{}
	for _, h := range spec.Hosts {
		d := spec.definition(h)
		wanted[d.dirName()] = d
	}
	out := map[string]string{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for digest, d := range wanted {
		group.Go(func() error {
			dir, err := m.Base(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			out[digest] = dir
			return err
		})
	}
	return out, group.Wait()
}

// The method `plan` decides all properties of the lab, but creates nothing.
func (m Machine) plan(ctx context.Context, x commands, spec Spec, bases map[string]string) (state, error) {
	s := state{Name: spec.Name, Domain: spec.domain(), dir: m.labDir(spec.Name)}
	if _, err := os.Stat(filepath.Join(s.dir, stateFile)); err == nil {
		return s, tutti.Errorf(tutti.CodeConflict, "lab %q already exists: remove it with `tutti lab down %s`", s.Name, s.Name)
	}
	taken, err := takenSubnets(ctx, x)
	if err != nil {
		return s, err
	}
	if s.Subnet, err = chooseSubnet(s.Name, taken); err != nil {
		return s, err
	}
	for i, h := range spec.Hosts {
		s.Hosts = append(s.Hosts, hostState{
			Name: h.Name, Names: spec.names(h), Address: s.address(i),
			Base: bases[spec.definition(h).dirName()], Binds: spec.Binds,
		})
	}
	return s, nil
}

// The method `make` creates the planned lab: first the network, then all hosts at the same time.
func (m Machine) make(ctx context.Context, x commands, s state, spec Spec) error {
	start := time.Now()
	mtu := outerMTU()
	if err := s.connect(ctx, x, mtu); err != nil {
		return err
	}
	m.raiseLimits(limits, m.hosts())
	err := eachHost(s, func(i int) error {
		files, err := m.hostFiles(ctx, s, i, spec.definition(spec.Hosts[i]).Release)
		if err != nil {
			return err
		}
		if err := s.furnish(i, files); err != nil {
			return err
		}
		if err := s.plug(ctx, x, i, mtu); err != nil {
			return err
		}
		if err := s.start(ctx, x, i); err != nil {
			return err
		}
		return m.wait(ctx, s, i)
	})
	if err == nil {
		m.logf("lab %s: %d hosts run after %s", s.Name, len(s.Hosts), time.Since(start).Round(10*time.Millisecond))
	}
	return err
}

// hosts returns the number of hosts of all labs, including a lab that is being created.
func (m Machine) hosts() int {
	n := 0
	labs, _ := m.List() // errors are ignored, because the number is an estimate
	for _, lab := range labs {
		n += len(lab.Hosts)
	}
	return n
}

// eachHost calls the function `do` for all hosts at the same time and joins their errors.
func eachHost(s state, do func(host int) error) error {
	errs := make([]error, len(s.Hosts))
	var wait sync.WaitGroup
	for i := range s.Hosts {
		wait.Go(func() { errs[i] = do(i) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func (m Machine) running(s state) *Running {
	r := &Running{Name: s.Name, Domain: s.Domain, Subnet: s.Subnet, Outer: s.outer(), Dir: s.dir}
	for i := range s.Hosts {
		r.Hosts = append(r.Hosts, m.host(s, i))
	}
	return r
}

// Open returns the named lab. Another process may have created the lab. If the name is empty, there must be only one
// lab.
func (m Machine) Open(name string) (*Running, error) {
	name, err := m.only(name)
	if err != nil {
		return nil, err
	}
	s, err := m.load(name)
	if err != nil {
		return nil, err
	}
	return m.running(s), nil
}

// List returns the labs of this machine, sorted by name.
func (m Machine) List() ([]*Running, error) {
	names, err := m.names()
	if err != nil {
		return nil, err
	}
	var all []*Running
	for _, name := range names {
		s, err := m.load(name)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			continue // Up was killed before it had created anything
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m.running(s))
	}
	return all, nil
}
