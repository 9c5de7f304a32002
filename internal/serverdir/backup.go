package serverdir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/archive"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/server"
)

const (
	// CallBackup is the path for requesting a backup from a running server on the server's own socket.
	CallBackup    = "/v1/server/backup"
	statusDamaged = http.StatusConflict // content that a backup needs is lost
)

// BackupOptions determine the server to back up, and the destination.
type BackupOptions struct {
	Dir    string
	Socket string // the server's socket, if the server runs
	File   string // must not exist; "-" means Out
	Out    io.Writer

	Release string // of this program
}

// Backup copies the state of a server at one event. The server may be running. Backup first
// writes a temporary file. Only a complete backup gets the name of the destination.
func Backup(ctx context.Context, o BackupOptions) (archive.End, error) {
	if o.File == "-" {
		end, err := backup(ctx, o, o.Out)
		return end, errors.Join(err, noteBackup(o, end, err))
	}
	if durable.Exists(o.File) {
		return archive.End{}, tutti.Errorf(tutti.CodeConflict, "%s exists; give another name", o.File)
	}
	// The backup contains the CA's key, and others may write to the directory. The file is therefore new, has an
	// unpredictable name, and only its owner may read it.
	tmp, err := os.CreateTemp(filepath.Dir(o.File), filepath.Base(o.File)+".*.part")
	if err != nil {
		return archive.End{}, tutti.Wrap(tutti.CodeInvalid, err, "write the backup")
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	end, err := backup(ctx, o, tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return end, err
	}
	if err := os.Rename(tmp.Name(), o.File); err != nil {
		return end, err
	}
	err = durable.SyncDir(filepath.Dir(o.File))
	return end, errors.Join(err, noteBackup(o, end, err))
}

// backupFile is a file in a server's directory that describes the last backup.
const backupFile = "backup.json"

// backupNote is the content of backupFile.
type backupNote struct {
	At   time.Time `json:"at"`
	File string    `json:"file"`
	Seq  uint64    `json:"seq"`
}

// noteBackup notes a successful backup, for doctor.
func noteBackup(o BackupOptions, end archive.End, err error) error {
	if err != nil {
		return nil //nolint:nilerr // the caller has the error
	}
	raw, err := json.Marshal(backupNote{At: time.Now().UTC(), File: o.File, Seq: end.Seq})
	if err == nil {
		err = durable.WriteFile(filepath.Join(o.Dir, backupFile), raw, 0o600)
	}
	return tutti.Wrap("", err, "%s is a complete backup, but the note about it could not be written", o.File)
}

// LastBackup returns when the last backup of a server was made, and when the server's directory was made.
// The first time is zero if there was no backup.
func LastBackup(dir string) (made, began time.Time) {
	if info, err := os.Stat(filepath.Join(dir, ConfigFile)); err == nil {
		began = info.ModTime()
	}
	raw, err := os.ReadFile(filepath.Join(dir, backupFile))
	var note backupNote
	if err != nil || json.Unmarshal(raw, &note) != nil {
		return time.Time{}, began
	}
	return note.At, began
}

// BackupName returns the name of a backup in a directory of backups. If names of backups are sorted, the
// oldest backup comes first.
func BackupName(at time.Time) string { return "tutti-" + at.UTC().Format("20060102T150405Z") + ".tar" }

var backupRE = regexp.MustCompile(`^tutti-\d{8}T\d{6}Z\.tar$`)

// PruneBackups removes all backups from a directory except the latest ones. PruneBackups does
// not touch other files.
func PruneBackups(dir string, keep int) (removed []string, err error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !backupRE.MatchString(e.Name()) || !e.Type().IsRegular() })
	for _, e := range entries[:max(0, len(entries)-keep)] {
		path := filepath.Join(dir, e.Name())
		if err := os.Remove(path); err != nil {
			return removed, err
		}
		removed = append(removed, path)
	}
	return removed, nil
}

func backup(ctx context.Context, o BackupOptions, to io.Writer) (archive.End, error) {
	lock, err := durable.Lock(o.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return archive.End{}, tutti.Errorf(tutti.CodeNotFound, "no server in %s", o.Dir)
	case tutti.CodeOf(err) == tutti.CodeConflict:
		return backupRunning(ctx, o.Socket, to)
	case err != nil:
		return archive.End{}, err
	}
	defer lock.Close()
	head, err := OpenHead(o.Dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return archive.End{}, err
	}
	defer head.File.Close()
	if err := head.InFiles(filepath.Join(o.Dir, "jetstream")); err != nil {
		return archive.End{}, err
	}
	if err := OpenContent(o.Dir).InFiles(filepath.Join(o.Dir, "jetstream")); err != nil {
		return archive.End{}, err
	}
	st, err := OpenStores(ctx, o.Dir)
	if err != nil {
		return archive.End{}, err
	}
	defer st.Close()
	log, err := natsbus.OpenLog(ctx, st.Conn, natsbus.LogOptions{Blobs: st.Blobs})
	if err == nil {
		err = head.InLog(ctx, log)
	}
	if err != nil {
		return archive.End{}, err
	}
	core := server.New(server.Options{Log: log, Blobs: st.Blobs, Logger: slog.New(slog.DiscardHandler)})
	c := &copier{dir: o.Dir, release: o.Release, to: to, hold: func(f func() error) error { return f() }}
	return c.end(core.CopyLog(ctx, c))
}

// backupRunning requests a backup from the server through its local socket. A caller who
// may use the socket may also read the server's directory.
func backupRunning(ctx context.Context, socket string, to io.Writer) (archive.End, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://tutti"+CallBackup, nil)
	if err != nil {
		return archive.End{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return archive.End{}, tutti.Wrap(tutti.CodeUnavailable, err, "the server is running but does not answer on its socket; give the socket with --socket")
	}
	defer resp.Body.Close()
	if resp.StatusCode == statusDamaged {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return archive.End{}, tutti.Errorf(tutti.CodeDamaged, "%s", bytes.TrimSpace(said))
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		return archive.End{}, tutti.Errorf(tutti.CodeUnavailable, "the server made no backup: %s: %s", resp.Status, said)
	}
	body := io.TeeReader(resp.Body, to)
	_, end, err := archive.Read(body, archive.Handler{})
	if err == nil {
		_, err = io.Copy(io.Discard, body) // the rest is only padding of the tar format
	}
	return end, tutti.Wrap("", err, "read the backup; the server's log may have the reason")
}

// BackupHandler answers requests of backupRunning. If a backup fails after it has begun, the
// handler cuts off the answer.
func BackupHandler(core *server.Server, dir, release string, hold func(func() error) error, log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-tar")
		c := &copier{dir: dir, release: release, to: w, hold: hold}
		end, err := c.end(core.CopyLog(r.Context(), c))
		if tutti.CodeOf(err) == tutti.CodeDamaged && c.Writer == nil { // nothing was sent yet
			http.Error(w, err.Error(), statusDamaged)
			return
		}
		if err != nil {
			log.Error("a backup was cut off", "error", err)
			panic(http.ErrAbortHandler)
		}
		log.Info("backup made", "seq", end.Seq, "entries", end.Entries, "blobs", end.Blobs)
	}
}

// copier is a past.Copy that writes an archive.
type copier struct {
	dir     string
	release string
	to      io.Writer
	hold    func(func() error) error // called while the files of the identity are read
	*archive.Writer
}

// Begin implements past.Copy.
func (c *copier) Begin(after uint64, link tutti.Digest) error {
	config, err := ReadConfig(c.dir)
	if err != nil {
		return err
	}
	c.Writer, err = archive.NewWriter(c.to, archive.Head{Release: c.release, MadeAt: time.Now().UTC(), Host: config.Host, After: after, Link: link})
	if err != nil {
		return err
	}
	var files []namedFile
	// The authority waits only while the files are read into memory, not while a slow reader gets the backup.
	if err := c.hold(func() error { files, err = c.files(); return err }); err != nil {
		return err
	}
	for _, f := range files {
		if err := c.File(f.name, f.content); err != nil {
			return err
		}
	}
	return nil
}

type namedFile struct {
	name    string
	content []byte
}

// The method `files` returns the files that a server's directory has in addition to its log.
// The files are the server's configuration and its keys.
func (c *copier) files() ([]namedFile, error) {
	names, err := filepath.Glob(filepath.Join(c.dir, "identity", "[^.]*"))
	if err != nil {
		return nil, err
	}
	var out []namedFile
	for _, name := range append([]string{filepath.Join(c.dir, ConfigFile)}, names...) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(c.dir, name)
		if err != nil {
			return nil, err
		}
		out = append(out, namedFile{filepath.ToSlash(rel), content})
	}
	return out, nil
}

func (c *copier) end(err error) (archive.End, error) {
	if err != nil {
		return archive.End{}, err
	}
	return c.Close()
}
