package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
)

const viewRounds = 20

// errSeen ends a stream after the frame that a measurement waits for.
var errSeen = errors.New("seen")

// measureViews measures the stream of views of a large fleet: the snapshot for a viewer who has just come, and the time from
// a write until a viewer has a frame with it.
func measureViews(ctx context.Context, s *server.Server, nodes int) ([]figure, error) {
	ctx = tutti.WithActor(ctx, "operator:bench")
	size, began := 0, time.Now()
	cursor := ""
	err := s.WatchFleet(ctx, api.WatchFleet{}, func(f api.FleetFrame) error {
		raw, err := json.Marshal(f)
		if size += len(raw); err != nil {
			return err
		}
		if cursor = f.Cursor; f.Whole {
			return errSeen
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		return nil, err
	}
	snapshot := time.Since(began)

	frames, stop := make(chan uint64), make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- s.WatchFleet(ctx, api.WatchFleet{After: cursor}, func(f api.FleetFrame) error {
			select {
			case frames <- f.Seq:
				return nil
			case <-stop:
				return errSeen
			}
		})
	}()
	defer close(stop)
	var took []time.Duration
	for i := range viewRounds {
		began := time.Now()
		if _, err := s.Pause(ctx, api.Pause{Target: string(nodeName(1)), Reason: fmt.Sprint(i)}); err != nil {
			return nil, err
		}
		wanted := s.Position().Seq
		for seen := uint64(0); seen < wanted; {
			select {
			case seen = <-frames:
			case err := <-failed:
				return nil, err
			}
		}
		took = append(took, time.Since(began))
	}
	return []figure{
		{fmt.Sprintf("views: a snapshot of %d nodes", nodes), float64(snapshot.Microseconds()) / 1000, "ms", 0},
		{"views: bytes of a snapshot", float64(size) / (1 << 20), "MiB", 0},
		{"views: from a write to its frame, median", quantile(took, 0.5), "ms", 0},
		{"views: from a write to its frame, p95", quantile(took, 0.95), "ms", 150},
	}, nil
}
