package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Push sends the environment in dir to the server. Push first sends the files that the
// server lacks, then the signed manifest. If the current code is pushed again, nothing
// changes.
func Push(ctx context.Context, codes api.Codes, dir, environment string, reaction *tutti.CodeReaction, source *tutti.CodeSource, sign Sign) (tutti.CodePushed, error) {
	manifest, files, err := readCode(dir, environment)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	return Send(ctx, codes, manifest, readFrom(files), tutti.CodePush{Reaction: reaction, Source: source}, sign)
}

// readFrom reads content from these files.
func readFrom(files map[tutti.Digest]string) ReadFiles {
	return func(_ context.Context, want map[tutti.Digest]bool, do func([]byte) error) error {
		for d := range want {
			content, err := os.ReadFile(files[d])
			if err == nil && tutti.DigestOf(content) != d {
				err = tutti.Errorf(tutti.CodeConflict, "%s changed while it was sent; push again", files[d])
			}
			if err == nil {
				err = do(content)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// Sign signs a manifest.
type Sign func(manifest []byte) (tutti.SignedCode, error)

// puts is how many files are sent to the server at the same time.
const puts = 4

// Send sends code to the server: first the files that the server lacks, then the signed manifest. The function read passes
// the content of the wanted files to its argument.
func Send(ctx context.Context, codes api.Codes, manifest tutti.CodeManifest, read ReadFiles, push tutti.CodePush, sign Sign) (tutti.CodePushed, error) {
	if err := sendFiles(ctx, codes, manifest, read); err != nil {
		return tutti.CodePushed{}, err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	if push.SignedCode, err = sign(raw); err != nil {
		return tutti.CodePushed{}, err
	}
	return codes.PushCode(ctx, push)
}

// ReadFiles passes the content of the wanted files to its last argument.
type ReadFiles func(context.Context, map[tutti.Digest]bool, func([]byte) error) error

// sendFiles sends those files of code that the server lacks.
func sendFiles(ctx context.Context, codes api.Codes, manifest tutti.CodeManifest, read ReadFiles) error {
	all := map[tutti.Digest]bool{}
	for _, f := range manifest.Files {
		if f.Link == "" {
			all[f.Digest] = true
		}
	}
	missing, err := codes.MissingBlobs(ctx, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return err
	}
	want := map[tutti.Digest]bool{}
	for _, d := range missing {
		want[d] = true
	}
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(puts)
	err = read(sending, want, func(content []byte) error {
		if err := sending.Err(); err != nil {
			return err
		}
		group.Go(func() error {
			_, err := codes.PutBlob(sending, content)
			return err
		})
		return nil
	})
	if failed := group.Wait(); failed != nil {
		err = failed
	}
	return tutti.Wrap("", err, "send the code")
}

// CodeDigest returns the digest of the code in dir. A push of dir would have the same digest.
func CodeDigest(dir, environment string) (tutti.Digest, error) {
	manifest, _, err := readCode(dir, environment)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(manifest)
	return tutti.DigestOf(raw), err
}

const maxCodeFile = 64 << 20

// readCode returns the manifest of an environment's directory. It also returns a map from the
// digest of each content to the path of a file with this content. The function leaves out the files
// of version control.
func readCode(dir, environment string) (tutti.CodeManifest, map[tutti.Digest]string, error) {
	m := tutti.CodeManifest{Version: 1, Environment: environment, Files: map[string]tutti.CodeFile{}}
	files := map[tutti.Digest]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if e.Name() == ".git" || e.Name() == ".svn" {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := readCodeFile(path, e)
		if err != nil {
			return err
		}
		m.Files[filepath.ToSlash(rel)] = f
		if f.Link == "" {
			files[f.Digest] = path
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil, tutti.Errorf(tutti.CodeInvalid, "no code in %s (environment.path of the fleet file)", dir)
	}
	if err != nil {
		return m, nil, err
	}
	if !m.IsEnvironment() {
		return m, nil, tutti.Errorf(tutti.CodeInvalid, "%s is no Puppet environment: neither environment.conf nor manifests/ is in it", dir)
	}
	return m, files, m.Validate()
}

func readCodeFile(path string, e fs.DirEntry) (tutti.CodeFile, error) {
	if e.Type()&fs.ModeSymlink != 0 {
		link, err := os.Readlink(path)
		return tutti.CodeFile{Link: link}, err
	}
	if !e.Type().IsRegular() {
		return tutti.CodeFile{}, tutti.Errorf(tutti.CodeInvalid, "%s: code is files, directories and links", path)
	}
	info, err := e.Info()
	if err != nil {
		return tutti.CodeFile{}, err
	}
	if info.Size() > maxCodeFile {
		return tutti.CodeFile{}, tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", path, info.Size(), maxCodeFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return tutti.CodeFile{}, err
	}
	return tutti.CodeFile{Digest: tutti.DigestOf(content), Size: info.Size(), Exec: info.Mode()&0o111 != 0}, nil
}
