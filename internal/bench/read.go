package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server"
)

const (
	readRounds = 10                   // each round measures all loads, one after another
	readWrites = 200                  // in a round
	readEvery  = 5 * time.Millisecond // one of them
)

// measureRead measures how much longer a write takes while somebody reads a large fleet.
// measureRead also measures the cost of the readers' own fold. The log is real but has no fsync,
// because the time of an fsync varies by more than the allowed delay.
func measureRead(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-read-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := newServerProcess(o, dir)
	if err != nil {
		return nil, err
	}
	past, err := newPastOf(o.nodes)
	if err != nil {
		return nil, err
	}
	if figures, err = past.fold(o.nodes); err != nil {
		return nil, err
	}
	err = withLog(ctx, s.data, func(log tutti.Log, blobs tutti.Blobs) error { return past.store(ctx, log, blobs) })
	if err != nil {
		return nil, err
	}
	past = nil // free this memory, because only the server's memory is measured
	err = serveHere(ctx, s.data, noBus{}, func(ctx context.Context, s *server.Server) error {
		views, err := measureViews(ctx, s, o.nodes)
		if err != nil {
			return err
		}
		figures = append(figures, views...)
		scrape, err := measureScrape(ctx, s, o.nodes)
		if err != nil {
			return err
		}
		figures = append(figures, scrape...)
		more, err := readBeside(ctx, s, o.nodes)
		figures = append(figures, more...)
		return err
	}, func(opts *server.Options) { opts.SnapshotEvery = 100 * o.nodes })
	return figures, err
}

// The method `fold` folds the events again and measures the memory and CPU that this takes. The
// events are in memory already.
func (p *pastOf) fold(nodes int) ([]figure, error) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	all := func() *fold.State {
		state := fold.New()
		for _, e := range p.events {
			state.Apply(e)
		}
		return state
	}
	first, before := all(), heap()
	began, err := cpuOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	second := all()
	ended, err := cpuOf(os.Getpid())
	added := heap() - before
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
	runtime.KeepAlive(p)
	return []figure{
		{fmt.Sprintf("readers' fold of %d nodes: memory", nodes), added / (1 << 20), "MiB", 0},
		{"readers' fold: CPU for each event", float64((ended - began).Microseconds()) / float64(len(p.events)), "us", 0},
	}, err
}

// The type `beside` is a load on the machine, for example readers. Writes are timed under this
// load.
type beside struct {
	name string
	goal float64 // goal is the goal for the delay in milliseconds. goal is 0 if the load has no goal.
	work []func(context.Context) (times int, err error)

	took  []time.Duration
	times int
}

// readBeside measures the time of writes without load, with readers, and with a goroutine that only
// computes. The goroutine that only computes shows the cost of a busy core.
func readBeside(ctx context.Context, s *server.Server, nodes int) ([]figure, error) {
	reader := func(ctx context.Context) (int, error) { return readAll(ctx, s, nodes) }
	all := []*beside{
		{name: "nobody"},
		{name: "a goroutine that computes", work: []func(context.Context) (int, error){compute}},
		{name: fmt.Sprintf("a reader of %d nodes", nodes), goal: 5, work: []func(context.Context) (int, error){reader}},
		{name: fmt.Sprintf("four readers of %d nodes", nodes), work: []func(context.Context) (int, error){reader, reader, reader, reader}},
	}
	for range readRounds {
		for _, b := range all {
			if err := b.round(ctx, s); err != nil {
				return nil, err
			}
		}
	}
	var out []figure
	for _, b := range all {
		name := "a write beside " + b.name
		out = append(out, figure{name + ", median", quantile(b.took, 0.5), "ms", 0}, figure{name + ", p99", quantile(b.took, 0.99), "ms", 0})
		if b.work != nil {
			out = append(out,
				figure{name + ", delay of the p99", quantile(b.took, 0.99) - quantile(all[0].took, 0.99), "ms", b.goal},
				figure{name + ", meanwhile", float64(b.times), "times", 0})
		}
	}
	return out, nil
}

// The method `round` measures the times of the writes of one round.
func (b *beside) round(ctx context.Context, s *server.Server) (err error) {
	working, stop := context.WithCancel(ctx)
	defer stop()
	var workers errgroup.Group
	times := make([]int, len(b.work))
	for i, work := range b.work {
		workers.Go(func() (err error) {
			times[i], err = work(working)
			return err
		})
	}
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for i := range readWrites {
		<-ticker.C
		began := time.Now()
		if err = s.SetValue(ctx, "bench/read", json.RawMessage(strconv.Itoa(i))); err != nil {
			break
		}
		b.took = append(b.took, time.Since(began))
	}
	stop()
	err = errors.Join(err, workers.Wait())
	for _, n := range times {
		b.times += n
	}
	return err
}

// readAll lists, explains and draws the fleet until ctx ends.
func readAll(ctx context.Context, s *server.Server, nodes int) (looks int, err error) {
	calls := []func() error{
		func() error { _, err := s.ListNodes(ctx); return err },
		func() error { _, err := s.ListJobs(ctx); return err },
		func() error { _, err := s.Graph(ctx, ""); return err },
		func() error { _, err := s.ListValues(ctx, ""); return err },
		func() error { _, err := s.ExplainNode(ctx, nodeName(looks%nodes)); return err },
		func() error { _, err := s.ShowNode(ctx, nodeName(looks%nodes)); return err },
	}
	for ; ctx.Err() == nil; looks++ {
		if err := calls[looks%len(calls)](); err != nil && ctx.Err() == nil {
			return looks, err
		}
	}
	return looks, nil
}

// The function `compute` fills and sorts maps until ctx ends.
func compute(ctx context.Context) (times int, err error) {
	for ; ctx.Err() == nil; times++ {
		names := map[string]int{}
		for i := range 10_000 {
			names[string(nodeName(i))] = i
		}
		slices.Sort(slices.Collect(maps.Keys(names)))
	}
	return times, nil
}
