package serverdir

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/archive"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// Restore makes a server's directory from a backup. The directory must be empty or not
// exist. Restore makes the whole directory or nothing. Restore returns CodeInvalid if the
// backup is not complete. In this case, Restore has written nothing.
func Restore(ctx context.Context, file, dir string) (archive.Head, archive.End, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return archive.Head{}, archive.End{}, err
	}
	if len(entries) > 0 {
		return archive.Head{}, archive.End{}, tutti.Errorf(tutti.CodeConflict, "%s is not empty; restore a server into a new or empty directory", dir)
	}
	f, err := os.Open(file)
	if err != nil {
		return archive.Head{}, archive.End{}, tutti.Wrap(tutti.CodeNotFound, err, "the backup")
	}
	defer f.Close()
	head, end, err := archive.Read(f, archive.Handler{})
	if err != nil {
		return head, end, tutti.Wrap("", err, "%s", file)
	}
	tmp := dir + ".restoring"
	if err := os.RemoveAll(tmp); err != nil { // a killed restore may have left this directory
		return head, end, err
	}
	if err := os.MkdirAll(filepath.Join(tmp, "identity"), 0o700); err != nil {
		return head, end, err
	}
	err = restoreInto(ctx, f, tmp, head, end)
	if err == nil {
		err = durable.SyncAll(tmp)
	}
	if err == nil && entries != nil {
		err = os.Remove(dir)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return head, end, errors.Join(err, os.RemoveAll(tmp))
	}
	return head, end, durable.SyncDir(filepath.Dir(dir))
}

// restoreInto writes the content of an archive. The function first writes the identity,
// because the bus needs it. The function writes everything else through the bus.
func restoreInto(ctx context.Context, f io.ReadSeeker, dir string, head archive.Head, end archive.End) error {
	read := func(h archive.Handler) error {
		_, err := f.Seek(0, io.SeekStart)
		if err == nil {
			_, _, err = archive.Read(f, h)
		}
		return err
	}
	err := read(archive.Handler{File: func(name string, content []byte) error {
		if name != ConfigFile && path.Dir(name) != "identity" {
			return tutti.Errorf(tutti.CodeInvalid, "the backup contains %q, which is not a file of a server", name)
		}
		return durable.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), content, 0o600)
	}})
	if err != nil {
		return err
	}
	st, err := OpenStores(ctx, dir)
	if err != nil {
		return err
	}
	defer st.Close()
	log, err := natsbus.RestoreLog(ctx, st.Conn, head.After, head.Link)
	if err != nil {
		return err
	}
	err = read(archive.Handler{
		Entry: func(e tutti.Entry) error { return log.Add(ctx, e) },
		Blob:  func(content []byte) error { _, err := st.Blobs.Put(ctx, content); return err },
	})
	if err == nil {
		err = log.Flush(ctx)
	}
	if err != nil {
		return err
	}
	if err := sameEnd(ctx, st, head, end); err != nil || end.Seq == 0 {
		return err
	}
	if err := nextEpoch(dir, 0); err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, HeadFile), []byte(headLine(end.Seq, end.Link)), 0o600)
}

// sameEnd reads the restored log in the same way as a server, and compares the log's end
// with the backup's end.
func sameEnd(ctx context.Context, st Stores, head archive.Head, end archive.End) error {
	log, err := natsbus.OpenLog(ctx, st.Conn, natsbus.LogOptions{Blobs: st.Blobs})
	if err != nil {
		return err
	}
	last := tutti.Entry{Seq: head.After, Link: head.Link}
	for e, err := range log.Entries(ctx, head.After) {
		if err != nil {
			return err
		}
		last = e
	}
	if last.Seq != end.Seq || last.Link != end.Link {
		return tutti.Errorf(tutti.CodeInternal, "the restored log ends with event %d, the backup with %d", last.Seq, end.Seq)
	}
	return nil
}
