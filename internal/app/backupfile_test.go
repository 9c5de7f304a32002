package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti/internal/serverdir"
)

// TestABackupIsItsOwnersAlone checks that only its owner can read a backup, because a backup contains the CA's key.
// Root may write the backup to a directory in which other users can write. The backup must not follow or use any file
// that somebody else put there before.
func TestABackupIsItsOwnersAlone(t *testing.T) {
	s := initStored(t)
	dir := t.TempDir()
	file, victim := filepath.Join(dir, "backup.tar"), filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, file+".part"); err != nil {
		t.Fatal(err)
	}
	back := func() {
		t.Helper()
		if _, err := serverdir.Backup(t.Context(), serverdir.BackupOptions{Dir: s.dir, File: file}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("the backup: %v, %v; want a file of its owner alone", info.Mode(), err)
		}
	}
	back()
	if raw, err := os.ReadFile(victim); err != nil || string(raw) != "of somebody else" {
		t.Errorf("where the link leads to are now %d bytes, %v", len(raw), err)
	}
	for _, path := range []string{file, file + ".part"} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file+".part", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	back()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want the backup and what was there", entries, err)
	}
}
