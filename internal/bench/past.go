package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/internal/sweep"
	"github.com/tutti-project/tutti/wire"
)

const (
	pastJobs   = 10_000
	pastNodes  = 100
	pastStarts = 5
	pastRecord = 4 << 10 // size of each run's record in bytes
)

// measurePast measures the start of a server after kill -9. The server has executed 10,000 jobs,
// and each job is a run with exports, a published value and a record.
func measurePast(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-past-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := newServerProcess(o, dir)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := fillPast(ctx, s.data); err != nil {
		return nil, fmt.Errorf("execute %d jobs: %w", pastJobs, err)
	}
	// The first start follows a clean end. All other starts follow a kill.
	var times []time.Duration
	for i := range pastStarts + 1 {
		began := time.Now()
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		if i > 0 {
			times = append(times, time.Since(began))
		}
		if err := s.SetValue(ctx, "shared/starts", json.RawMessage(fmt.Sprint(i))); err != nil {
			return nil, err
		}
		s.kill()
	}
	size, err := sizeOf(s.data)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"start after kill -9 with 10,000 jobs, median", quantile(times, 0.5), "ms", 2000},
		{"data directory with 10,000 jobs", float64(size) / (1 << 20), "MiB", 200},
	}, nil
}

func sizeOf(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// pastServer is the server's own code on the real log of a data directory, without fsync, TLS and
// agents. Without them 10,000 jobs take only a minute.
type pastServer struct {
	*server.Server
}

type noBus struct{}

func (noBus) Ring(tutti.NodeKey, string, []byte) error { return nil }

func fillPast(ctx context.Context, data string) error {
	return serveHere(ctx, data, noBus{}, func(ctx context.Context, s *server.Server) error { return pastServer{s}.fill(ctx) })
}

// serveHere runs the server's own code in this process while f uses the server.
func serveHere(ctx context.Context, data string, ring server.Bus, f func(context.Context, *server.Server) error, change ...func(*server.Options)) error {
	return withLog(ctx, data, func(log tutti.Log, blobs tutti.Blobs) error {
		opts := server.Options{
			Log: log, Blobs: blobs, Bus: ring, Silence: time.Hour, Identity: &servertest.Identity{}, Logger: quiet(),
			NewRunID: func() tutti.RunID { return tutti.RunID(uuid.Must(uuid.NewV7()).String()) },
		}
		for _, c := range change {
			c(&opts)
		}
		s := server.New(opts)
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		err := f(tutti.WithActor(ctx, "operator:bench"), s)
		cancel()
		if last := <-ended; !errors.Is(last, context.Canceled) {
			err = errors.Join(err, last)
		}
		return err
	})
}

// withLog opens the log of a data directory without fsync, while f uses it.
func withLog(ctx context.Context, data string, f func(tutti.Log, tutti.Blobs) error) error {
	authority, err := identity.Load(filepath.Join(data, "identity"))
	if err != nil {
		return err
	}
	trust, err := authority.Trust()
	if err != nil {
		return err
	}
	bus, err := embed.Start(embed.Options{
		Dir: filepath.Join(data, "jetstream"), Listen: "127.0.0.1:0", TLS: authority.Bus(), Trust: embed.Trust(trust), NoSync: true,
	})
	if err != nil {
		return err
	}
	defer bus.Shutdown()
	creds, err := authority.ServerCreds()
	if err != nil {
		return err
	}
	nc, err := natsbus.Connect(ctx, "", creds.Log.JWT, creds.Log.Seed, bus.InProcess())
	if err != nil {
		return err
	}
	defer nc.Close()
	stored, err := natsbus.OpenBlobs(ctx, nc)
	if err != nil {
		return err
	}
	began := time.Now() // the clock of the sweeper runs 1,000 times too fast, so unused blobs are soon old enough to be deleted
	blobs := sweep.New(stored, func() time.Time { return began.Add(1000 * time.Since(began)) })
	log, err := natsbus.OpenLog(ctx, nc, natsbus.LogOptions{Blobs: blobs})
	if err != nil {
		return err
	}
	return f(log, blobs)
}

func (p pastServer) fill(ctx context.Context) error {
	var names, plans []string
	for i := range pastNodes {
		name := nodeName(i)
		if err := p.join(ctx, name); err != nil {
			return err
		}
		names = append(names, string(name))
		plans = append(plans, fmt.Sprintf("  %s: {steps: [{run: %s}]}\n", name, name))
	}
	fleet := "fleet: past\nenvironment: {name: production, path: ./code}\ngroups: {all: {nodes: [" + strings.Join(names, ", ") + "]}}\n" +
		"grants: [{to: all, exports: [Host]}]\nplans:\n" + strings.Join(plans, "")
	if _, err := p.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(fleet)}); err != nil {
		return err
	}
	manifest := servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production"})
	if _, err := p.PushCode(ctx, tutti.CodePush{SignedCode: manifest}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range pastNodes {
		group.Go(func() error {
			for range pastJobs / pastNodes {
				if err := p.job(ctx, nodeName(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (p pastServer) join(ctx context.Context, name tutti.NodeName) error {
	token, err := p.CreateToken(ctx, api.CreateToken{Name: string(name)})
	if err != nil {
		return err
	}
	_, err = p.Enrol(ctx, servertest.SignEnrol(api.EnrolRequest{
		Token: token.Token, Secret: []byte(token.Text), Name: name, Key: servertest.Key(string(name)),
	}))
	return err
}

// The method `job` executes one job on its node.
func (p pastServer) job(ctx context.Context, name tutti.NodeName) error {
	key := servertest.Key(string(name))
	if _, err := p.StartJob(ctx, api.StartJob{Plan: tutti.PlanName(name), Mode: tutti.ModeApply}); err != nil {
		return err
	}
	call := func(op string, in, out any) error {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		reply, err := p.Handle(ctx, key, op, raw)
		if err != nil || out == nil {
			return err
		}
		return json.Unmarshal(reply, out)
	}
	var claimed wire.Claimed
	if err := call(wire.OpClaim, wire.Claim{}, &claimed); err != nil {
		return err
	}
	run := claimed.Order.Run
	mine := "node/" + string(name) + "/run"
	exports := []tutti.Export{{Type: "Host", Title: string(run)}}
	if err := call(wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: []string{mine}}, Exports: exports}, nil); err != nil {
		return err
	}
	value, err := json.Marshal(run)
	if err != nil {
		return err
	}
	if err := call(wire.OpPublish, wire.Publish{Run: run, Key: mine, Value: value}, nil); err != nil {
		return err
	}
	record := filler(run, pastRecord)
	if _, err := p.Handle(ctx, key, wire.OpBlobPut, record); err != nil {
		return err
	}
	result := servertest.Result(run, tutti.Changed)
	result.Record = tutti.DigestOf(record)
	return call(wire.OpResult, result, nil)
}
