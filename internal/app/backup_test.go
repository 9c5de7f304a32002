package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/serverdir"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/archive"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/server"
)

// The method `trimmed` makes the log drop its beginning, as a server does after ten thousand events.
func (s stored) trimmed(t *testing.T) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	ctx, stop := context.WithCancel(tutti.WithActor(t.Context(), "operator:ada"))
	defer stop()
	st, err := serverdir.OpenStores(ctx, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	h, err := serverdir.OpenHead(s.dir, logger)
	if err != nil {
		t.Fatal(err)
	}
	defer h.File.Close()
	log, err := natsbus.OpenLog(ctx, st.Conn, natsbus.LogOptions{Blobs: st.Blobs})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := identity.Load(filepath.Join(s.dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	core := server.New(server.Options{Log: serverdir.Witness(log, h, serverdir.OpenContent(s.dir), st.Blobs), Blobs: st.Blobs, Logger: logger, Identity: &serverdir.Identity{Authority: authority, Bus: st.Bus}, SnapshotEvery: 40})
	ended := make(chan error, 1)
	go func() { ended <- core.Run(ctx) }()
	for i := range 100 { // later writes overwrite or unset most of these values
		key := fmt.Sprint("shared/trimmed/", i%7)
		err := core.SetValue(ctx, key, fmt.Appendf(nil, "%d", i))
		if err == nil && i%5 == 0 {
			err = core.UnsetValue(ctx, key)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tick, limit := time.NewTicker(10*time.Millisecond), time.After(hang)
	defer tick.Stop()
	for !letGo(ctx, log) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited %s for the log to let go of its beginning", hang)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// letGo reports whether the log no longer has the first event.
func letGo(ctx context.Context, log *natsbus.Log) bool {
	for e, err := range log.Entries(ctx, 0) {
		return tutti.CodeOf(err) == tutti.CodeNotFound || err == nil && e.Seq > 1
	}
	return false
}

// The type `known` contains all information that a server returns to operators.
type known struct {
	Values    []api.ValueView
	Tokens    []api.TokenView
	Operators []api.OperatorView
	Fleet     tutti.Fleet
	Trail     []api.AuditEntry
}

// The method `ask` runs the server and reads all its information. The method reads the audit trail only up to the
// given event.
func (s stored) ask(t *testing.T, upTo uint64) (out known) {
	t.Helper()
	s.mustServe(t, func(ctx context.Context, c api.Values) error {
		client := c.(*httpapi.Client)
		var errs [4]error
		out.Values, errs[0] = client.ListValues(ctx, "")
		out.Tokens, errs[1] = client.ListTokens(ctx)
		out.Operators, errs[2] = client.ListOperators(ctx)
		out.Fleet, errs[3] = client.GetFleet(ctx)
		return errors.Join(append(errs[:], client.ReadAudit(ctx, api.ReadAudit{}, func(e api.AuditEntry) error {
			if e.Seq <= upTo {
				out.Trail = append(out.Trail, e)
			}
			return nil
		}))...)
	})
	return out
}

// If the log has dropped its beginning, a backup contains the snapshot instead of the beginning. The restored server
// has the same information as the old server, also about the past.
func TestABackupOfATrimmedLog(t *testing.T) {
	for _, reason := range []string{"the server does not run", "it runs"} {
		t.Run(reason, func(t *testing.T) {
			s := initStored(t)
			s.mustServe(t, func(ctx context.Context, c api.Values) error {
				client := c.(*httpapi.Client)
				_, tokenErr := client.CreateToken(ctx, api.CreateToken{Name: "db-*", TTL: time.Hour})
				_, fleetErr := client.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: kept\ngroups: {db: {nodes: [db-01]}}\n")})
				return errors.Join(tokenErr, fleetErr, writes("shared/first", 5)(ctx, c))
			})
			s.trimmed(t)
			file := filepath.Join(t.TempDir(), "all.tar")
			var end archive.End
			backup := func(ctx context.Context) (err error) {
				end, err = serverdir.Backup(ctx, serverdir.BackupOptions{Dir: s.dir, Socket: s.socket, File: file})
				return err
			}
			if reason == "it runs" {
				short, err := os.MkdirTemp("", "tutti-") // a socket's path must be short
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(short) })
				s.socket = filepath.Join(short, "sock")
				s.mustServe(t, func(ctx context.Context, _ api.Values) error { return backup(ctx) })
			} else if err := backup(t.Context()); err != nil {
				t.Fatal(err)
			}
			restored := s
			restored.dir = filepath.Join(t.TempDir(), "restored")
			head, restoredEnd, err := serverdir.Restore(t.Context(), file, restored.dir)
			if err != nil {
				t.Fatal(err)
			}
			if head.After == 0 || restoredEnd != end || end.Seq <= head.After {
				t.Fatalf("the backup is of the events after %d, to %+v; restored was up to %+v", head.After, end, restoredEnd)
			}
			want, got := s.ask(t, end.Seq), restored.ask(t, end.Seq)
			if len(want.Trail) != int(end.Seq) || len(want.Values) == 0 || len(want.Tokens) != 1 {
				t.Fatalf("the old server knows too little: %d events of %d, %d values, %d tokens", len(want.Trail), end.Seq, len(want.Values), len(want.Tokens))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what the server knows: -old +restored\n%.4000s", diff)
			}
		})
	}
}
