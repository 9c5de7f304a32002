package app

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/serverdir"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The method `restored` restores a backup into a new directory and returns that server.
func (s stored) restored(t *testing.T, file string) stored {
	t.Helper()
	s.dir = filepath.Join(t.TempDir(), "restored")
	if _, _, err := serverdir.Restore(t.Context(), file, s.dir); err != nil {
		t.Fatal(err)
	}
	return s
}

// epoch returns the number of the server's last epoch.
func (s stored) epoch(t *testing.T) uint64 {
	t.Helper()
	e, err := serverdir.OpenEpochs(s.dir)
	if err != nil || e.Above != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	return e.Epoch.Number
}

// The method `refused` returns the error that an operator gets when the operator's client refuses the server.
func (s stored) refused(t *testing.T) string {
	t.Helper()
	var said error
	s.mustServe(t, func(ctx context.Context, c api.Values) error {
		said = c.SetValue(ctx, "shared/refused", []byte("1"))
		if tutti.CodeOf(said) != tutti.CodeDamaged {
			t.Errorf("a server that went back answers %v", said)
			return nil
		}
		values, err := c.ListValues(ctx, "")
		if err == nil {
			t.Errorf("it tells values: %v", values)
		}
		return nil
	})
	if said == nil {
		return ""
	}
	return said.Error()
}

// A restored server begins a new epoch. Nodes and operators refuse a server whose log went back without a new epoch.
// If two servers were restored from the same backup, nodes and operators refuse the second server until an operator
// chooses it (finding F14).
func TestAServerThatWentBack(t *testing.T) {
	s := initStored(t)
	s.mustServe(t, writes("shared/first", 2))
	file := filepath.Join(t.TempDir(), "all.tar")
	if _, err := serverdir.Backup(t.Context(), serverdir.BackupOptions{Dir: s.dir, File: file}); err != nil {
		t.Fatal(err)
	}
	whole := s.keep(t)
	s.mustServe(t, writes("shared/lost", 1))
	// this does the same as restoring an old image of the machine
	whole("jetstream", serverdir.HeadFile, serverdir.EpochFile)
	if says := s.refused(t); !strings.Contains(says, "its log has gone back") {
		t.Errorf("one write of it is lost: %s", says)
	}

	one := s.restored(t, file)
	one.mustServe(t, writes("shared/one", 1))
	first := one.epoch(t)
	if first < 2 {
		t.Errorf("the restored server began epoch %d", first)
	}
	one.mustServe(t, writes("shared/more", 1))
	if got := one.epoch(t); got != first {
		t.Errorf("its second start began epoch %d", got)
	}
	if says := s.refused(t); !strings.Contains(says, "older than the epoch seen before") {
		t.Errorf("the old server beside the restored one: %s", says)
	}
	// The test restores the same backup again. The test lowers the epoch of this server, as if the clock had gone
	// back.
	two := s.restored(t, file)
	e, err := serverdir.OpenEpochs(two.dir)
	if err != nil {
		t.Fatal(err)
	}
	if e.Above < first {
		t.Errorf("restored later, it begins epoch %d, the one before began %d", e.Above, first)
	}
	e.Above = 1
	if err := e.Write(); err != nil {
		t.Fatal(err)
	}
	if says := two.refused(t); !strings.Contains(says, "older than the epoch seen before") {
		t.Errorf("restored twice: %s", says)
	}
	if err := serverdir.NewEpoch(two.dir, 0); err != nil {
		t.Fatal(err)
	}
	two.mustServe(t, writes("shared/two", 1))
	if got := two.epoch(t); got <= first {
		t.Errorf("the second restored server began epoch %d", got)
	}
}

// In this test, two servers were restored from one backup. When the first server began its epoch, its clock was
// ahead by a year, so the second server is refused. The error message names a command after which the second server
// is accepted.
func TestAnEpochOfAClockThatWasAhead(t *testing.T) {
	s := initStored(t)
	s.mustServe(t, writes("shared/first", 2))
	file := filepath.Join(t.TempDir(), "all.tar")
	if _, err := serverdir.Backup(t.Context(), serverdir.BackupOptions{Dir: s.dir, File: file}); err != nil {
		t.Fatal(err)
	}
	one := s.restored(t, file)
	ahead := uint64(now().AddDate(1, 0, 0).UnixMilli())
	if err := serverdir.NewEpoch(one.dir, ahead-1); err != nil {
		t.Fatal(err)
	}
	one.mustServe(t, writes("shared/one", 1))
	if got := one.epoch(t); got != ahead {
		t.Fatalf("the first restored server began epoch %d, want %d", got, ahead)
	}
	two := s.restored(t, file)
	says := two.refused(t)
	_, hint, found := strings.Cut(says, "tutti server new-epoch --above ")
	above, err := strconv.ParseUint(strings.TrimSpace(hint), 10, 64)
	if !found || err != nil {
		t.Fatalf("no epoch to begin above: %s", says)
	}
	if err := serverdir.NewEpoch(two.dir, above); err != nil {
		t.Fatal(err)
	}
	two.mustServe(t, writes("shared/two", 1))
	if err := serverdir.NewEpoch(two.dir, serverdir.MaxAbove+1); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("an epoch with no room after it: %v", err)
	}
}

// A thief once ran a copy of the server from a backup. Operators can still use the honest server.
func TestAnEpochOfAThief(t *testing.T) {
	s := initStored(t)
	s.mustServe(t, writes("shared/first", 2))
	file := filepath.Join(t.TempDir(), "all.tar")
	if _, err := serverdir.Backup(t.Context(), serverdir.BackupOptions{Dir: s.dir, File: file}); err != nil {
		t.Fatal(err)
	}
	thief := s.restored(t, file)
	if err := serverdir.NewEpoch(thief.dir, serverdir.MaxAbove); err != nil {
		t.Fatal(err)
	}
	thief.mustServe(t, writes("shared/one", 1))
	if got := thief.epoch(t); got != serverdir.MaxAbove+1 {
		t.Fatalf("the thief's server began epoch %d", got)
	}
	s.mustServe(t, writes("shared/two", 1))
}

func TestNewEpochIsForAServerThatDoesNotRun(t *testing.T) {
	if err := serverdir.NewEpoch(t.TempDir(), 0); err == nil {
		t.Error("there is no server")
	}
	s := initStored(t)
	s.mustServe(t, func(context.Context, api.Values) error {
		if err := serverdir.NewEpoch(s.dir, 0); tutti.CodeOf(err) != tutti.CodeConflict {
			t.Errorf("of a server that runs: %v", err)
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(s.dir, serverdir.EpochFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.serve(t, writes("shared/never", 1)); tutti.CodeOf(err) != tutti.CodeDamaged || !strings.Contains(err.Error(), "tutti server new-epoch") {
		t.Errorf("with a file that nobody can read: %v", err)
	}
	if err := serverdir.NewEpoch(s.dir, 0); err != nil {
		t.Fatal(err)
	}
	s.mustServe(t, writes("shared/again", 1))
}

// The server needs the files in this test, and a backup contains them. If one of them is damaged, the server reports
// this and changes nothing.
func TestADamagedServerSaysSo(t *testing.T) {
	for _, name := range []string{serverdir.ConfigFile, "identity/bus-nodes.jwt", "identity/server.key", "identity/ca.crt", "identity/code.pub"} {
		s := initStored(t)
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte("\x00{"), 0o600); err != nil {
			t.Fatal(err)
		}
		notLock := func(name string) bool { return filepath.Base(name) != "lock" }
		before := files(t, s.dir, notLock)
		_, err := s.serve(t, writes("shared/never", 1))
		if tutti.CodeOf(err) != tutti.CodeDamaged || !strings.Contains(err.Error(), filepath.Base(name)) || !strings.Contains(err.Error(), "put it back from a backup") {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, files(t, s.dir, notLock)); diff != "" {
			t.Errorf("%s: files -before +after\n%s", name, diff)
		}
	}
}
