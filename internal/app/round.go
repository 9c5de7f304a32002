package app

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/serverdir"
	"github.com/tutti-project/tutti/internal/space"
	"github.com/tutti-project/tutti/internal/sweep"
)

// errRotated ends a round if its bus still uses old keys after a rotation.
var errRotated = errors.New("the server's keys were rotated")

// lookForRoom is how often the server checks whether the full disk has room again.
const lookForRoom = time.Second

// Run runs the server until ctx ends or a part of the server fails. Run returns after all parts have
// ended. Run closes what NewServer has opened. A full disk ends the bus and the writer, but the process
// goes on. While the disk is full, operators get an error that says so. When the disk has room again,
// Run starts bus and writer again.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	group, ctx := errgroup.WithContext(ctx)
	s.web(ctx, group)
	s.sample(ctx, group)
	group.Go(func() error { return s.rounds(ctx) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// The method `rounds` starts bus, log and writer again each time after a full disk has ended them.
func (s *Server) rounds(ctx context.Context) error {
	for {
		for s.reserve.Exhausted() != nil {
			s.opts.Logger.Error("not serving", "because", s.full())
			s.doors.close(s.full)
			notify("READY=1\nSTATUS=" + s.full().Error())
			if err := pause(ctx, lookForRoom); err != nil {
				return err
			}
		}
		err := s.round(ctx)
		if errors.Is(err, errRotated) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			s.opts.Logger.Info("the keys were rotated, so the bus restarts")
			s.doors.close(func() error {
				return tutti.Errorf(tutti.CodeUnavailable, "the server's keys were rotated, and the server is restarting")
			})
			continue
		}
		if ctx.Err() != nil || !s.diskEnded(err) {
			return err
		}
		s.opts.Logger.Error("the disk is full, so the server stops serving for now", "error", err)
		s.doors.close(s.full)
		if err := pause(ctx, lookForRoom); err != nil {
			return err
		}
	}
}

// diskEnded reports whether a full disk is the reason why a round has ended. On a nearly full disk, the
// bus may lose a batch without an error message. The round then ends with CodeUnavailable. Other errors
// on a nearly full disk, such as damage, have other reasons.
func (s *Server) diskEnded(err error) bool {
	return space.Full(err) || s.reserve.Exhausted() != nil || s.reserve.Check() != nil && tutti.CodeOf(err) == tutti.CodeUnavailable
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// The method `full` returns an error that says why the server does not serve.
func (s *Server) full() error {
	if err := s.reserve.Check(); err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeUnavailable, "the server's disk was full (%s), and the server is restarting", s.opts.Dir)
}

// The method `round` keeps bus, log and writer running until ctx ends or one of the three fails.
func (s *Server) round(ctx context.Context) error {
	busDir := filepath.Join(s.opts.Dir, "jetstream")
	if err := s.head.InFiles(busDir); err != nil {
		return err
	}
	if err := s.content.InFiles(busDir); err != nil {
		return err
	}
	trust, err := s.authority.Trust()
	if err != nil {
		return err
	}
	files, err := reserveFiles(s.opts.Logger)
	if err != nil {
		return err
	}
	bus, err := embed.Start(embed.Options{
		HalfOpen: partOfFiles(4, 4096), Connections: partOfFiles(2, 1<<16), NoFiles: files.wait,
		Dir: busDir, Listen: s.opts.Bus, TLS: s.authority.Bus(),
		Trust: embed.Trust(trust), LogTo: s.opts.Logger.With("part", "nats"),
	})
	if err != nil {
		return err
	}
	defer bus.Shutdown()
	// the next round must listen on the same address, because nodes connect to it
	s.opts.Bus = bus.Addr().String()
	s.noteRunning(bus)
	creds, err := s.authority.ServerCreds()
	if err != nil {
		return err
	}
	logConn, err := serverdir.ConnectBus(ctx, bus, creds.Log)
	if err != nil {
		return err
	}
	defer logConn.Close()
	nodeConn, err := serverdir.ConnectBus(ctx, bus, creds.Nodes)
	if err != nil {
		return err
	}
	defer nodeConn.Close()
	sysConn, err := serverdir.ConnectBus(ctx, bus, creds.System)
	if err != nil {
		return err
	}
	defer sysConn.Close()
	stored, err := natsbus.OpenBlobs(ctx, logConn)
	if err != nil {
		return err
	}
	// the log gets the same sweeper as the server, so that the log never names a blob that is
	// being deleted
	blobs := sweep.New(stored, time.Now)
	eventLog, err := natsbus.OpenLog(ctx, logConn, natsbus.LogOptions{Blobs: blobs})
	if err != nil {
		return err
	}
	if err := s.head.InLog(ctx, eventLog); err != nil {
		return err
	}
	rotated := make(chan struct{})
	keys := &serverdir.Identity{Authority: s.authority, Bus: bus, Config: s.config, OnSettle: sync.OnceFunc(func() { close(rotated) })}
	core := server.New(server.Options{
		Log: timedLog{serverdir.Witness(eventLog, s.head, s.content, stored), s.meters}, Meter: s.meters, Blobs: blobs, Bus: ringer{nodeConn}, Logger: s.opts.Logger,
		Identity: keys, Keys: keys,
		Space:   s.reserve.Check,
		ENC:     s.enc != nil,
		Silence: s.opts.Silence, InFlight: s.opts.MaxRuns, Compiles: s.opts.Compiles, Keep: engine.Keep{Jobs: s.opts.KeepJobs}, KeepReports: s.opts.Reports,
		FirstOperator: s.config.First,
		Epochs:        s.epochs,
		Scrubs:        serverdir.ScrubNotes{Dir: s.opts.Dir}, ScrubEvery: s.opts.ScrubEvery,
		NewRunID: func() tutti.RunID { return tutti.RunID(uuid.Must(uuid.NewV7()).String()) },
	})
	defer s.unmeasured()
	return s.serve(ctx, core, parts{bus: bus, stores: serving{core: core, bus: bus, log: eventLog, blobs: stored}, log: logConn, nodes: nodeConn, sys: sysConn, rotated: rotated})
}

// runningName is a file next to the log. In this file, the server stores its settings for
// `tutti doctor`.
const runningName = "running.json"

type runningFile struct {
	Version    string `json:"version"`
	SyncAlways bool   `json:"sync_always"`
}

// noteRunning writes runningName. The file may be missing if the disk is full. Nothing else depends on
// the file.
func (s *Server) noteRunning(bus *embed.Server) {
	raw, err := json.Marshal(runningFile{Version: Version, SyncAlways: bus.SyncAlways()})
	if err == nil {
		_ = os.WriteFile(filepath.Join(s.opts.Dir, runningName), raw, 0o600)
	}
}

// parts are the connections and stores of one round.
type parts struct {
	bus             *embed.Server
	stores          serving
	log, nodes, sys *nats.Conn
	rotated         <-chan struct{} // closed when the bus uses keys that a rotation has replaced
}
