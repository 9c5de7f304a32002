package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Push sends the environment in dir to the server. Push first sends the files that the
// server lacks, then the signed manifest. If the current code is pushed again, nothing
// changes.
func Push(ctx context.Context, codes api.Codes, dir, environment string, reaction *tutti.CodeReaction, source *tutti.CodeSource, sign func(manifest []byte) (tutti.SignedCode, error)) (tutti.CodePushed, error) {
	manifest, files, err := readCode(dir, environment)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	digests := make([]tutti.Digest, 0, len(files))
	for d := range files {
		digests = append(digests, d)
	}
	slices.Sort(digests)
	missing, err := codes.MissingBlobs(ctx, digests)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	for _, d := range missing {
		content, err := os.ReadFile(files[d])
		if err != nil {
			return tutti.CodePushed{}, err
		}
		stored, err := codes.PutBlob(ctx, content)
		if err != nil {
			return tutti.CodePushed{}, tutti.Wrap("", err, "send %s", files[d])
		}
		if stored != d {
			return tutti.CodePushed{}, tutti.Errorf(tutti.CodeConflict, "%s changed while it was sent; push again", files[d])
		}
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	signed, err := sign(raw)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	return codes.PushCode(ctx, tutti.CodePush{SignedCode: signed, Reaction: reaction, Source: source})
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
	if _, ok := m.Files["environment.conf"]; !ok && !hasManifests(m) {
		return m, nil, tutti.Errorf(tutti.CodeInvalid, "%s is no Puppet environment: neither environment.conf nor manifests/ is in it", dir)
	}
	return m, files, m.Validate()
}

func hasManifests(m tutti.CodeManifest) bool {
	for name := range m.Files {
		if strings.HasPrefix(name, "manifests/") {
			return true
		}
	}
	return false
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
