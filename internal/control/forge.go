package control

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// The limits of what a forge sends.
const (
	forgeDeadline = 2 * time.Minute
	maxAnswer     = 8 << 20
	maxArchive    = 256 << 20
	maxUnpacked   = 1 << 30
)

// The type `release` is one version of a module of a forge, as the forge's API version 3 has it.
type release struct {
	Version string `json:"version"`
	URI     string `json:"file_uri"`
	SHA256  string `json:"file_sha256"`
}

var (
	versionRE = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?$`)
	sha256RE  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// The method `release` finds a version of a module. If the version is known already, the forge is not asked.
func (c Cache) release(ctx context.Context, forge, module, version string) (release, error) {
	slug := strings.ReplaceAll(module, "/", "-")
	file := filepath.Join(c.Dir, "forge", short(forge), slug+"-"+version+".json")
	var out release
	if version != "" {
		if !versionRE.MatchString(version) {
			return out, tutti.Errorf(tutti.CodeInvalid, "version %q: an exact version is needed, like 9.4.1", version)
		}
		if raw, err := os.ReadFile(file); err == nil && json.Unmarshal(raw, &out) == nil && sha256RE.MatchString(out.SHA256) {
			return out, nil
		}
	}
	var err error
	if version == "" {
		var m struct {
			Current release `json:"current_release"`
		}
		err = askForge(ctx, forge, "/v3/modules/"+slug, &m)
		out = m.Current
	} else {
		err = askForge(ctx, forge, "/v3/releases/"+slug+"-"+version, &out)
	}
	if err != nil {
		return out, err
	}
	out.SHA256 = strings.ToLower(out.SHA256)
	if !sha256RE.MatchString(out.SHA256) || out.URI == "" || !versionRE.MatchString(out.Version) || version != "" && out.Version != version {
		return out, tutti.Errorf(tutti.CodeInvalid, "%s: version %q, file %q, SHA-256 %q: the forge does not say what is needed", slug, out.Version, out.URI, out.SHA256)
	}
	file = filepath.Join(c.Dir, "forge", short(forge), slug+"-"+out.Version+".json")
	var known release
	if raw, err := os.ReadFile(file); err == nil && json.Unmarshal(raw, &known) == nil && sha256RE.MatchString(known.SHA256) && known.SHA256 != out.SHA256 {
		return out, tutti.Errorf(tutti.CodeRefused, "%s %s had the SHA-256 %s, and the forge now says %s: a release must not change; if it is right, remove %s", slug, out.Version, known.SHA256, out.SHA256, file)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return out, err
	}
	return out, c.write(file, raw)
}

func askForge(ctx context.Context, forge, at string, into any) error {
	raw, err := get(ctx, forge, at, maxAnswer, false)
	if err != nil {
		return err
	}
	return tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(raw, into), "the answer of the forge about %s", at)
}

// The function `get` reads an address below a forge. With `elsewhere` the forge may redirect to another host: an archive has a
// SHA-256, which the forge itself has named.
func get(ctx context.Context, forge, at string, most int64, elsewhere bool) ([]byte, error) {
	base, err := url.Parse(forge)
	if err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%q is not the address of a forge", withoutPassword(forge))
	}
	target, err := base.Parse(at)
	if err == nil && strings.HasPrefix(at, "/") { // a forge may be below a path
		target = base.JoinPath(at)
	}
	if err != nil || target.Host != base.Host || target.Scheme != base.Scheme {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the forge %s names a file elsewhere: %.100q", base.Host, at)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, forgeDeadline, tutti.Errorf(tutti.CodeDeadline, "no whole answer of the forge %s within %s", base.Host, forgeDeadline))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if base.Scheme == "https" && to.URL.Scheme != "https" {
			return tutti.Errorf(tutti.CodeRefused, "it redirects to %s, without TLS", to.URL.Host)
		}
		if !elsewhere && to.URL.Host != base.Host {
			return tutti.Errorf(tutti.CodeRefused, "it redirects to another host, %s: give that address as the forge's", to.URL.Host)
		}
		if len(via) >= 10 {
			return tutti.Errorf(tutti.CodeInvalid, "it redirects more than 10 times")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "the forge")
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the forge answers %s: %s", target.Redacted(), resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil && int64(len(raw)) > most {
		err = tutti.Errorf(tutti.CodeInvalid, "%s: more than %d bytes", target.Redacted(), most)
	}
	return raw, err
}

// The method `archive` returns a release's archive, whose SHA-256 is as the forge says.
func (c Cache) archive(ctx context.Context, forge string, r release) ([]byte, error) {
	file := filepath.Join(c.Dir, "forge", r.SHA256+".tar.gz")
	raw, err := os.ReadFile(file)
	if err == nil && sumOf(raw) == r.SHA256 {
		return raw, nil
	}
	if raw, err = get(ctx, forge, r.URI, maxArchive, true); err != nil {
		return nil, err
	}
	if sum := sumOf(raw); sum != r.SHA256 {
		return nil, tutti.Errorf(tutti.CodeRefused, "%s has the SHA-256 %s, but the forge says %s", r.URI, sum, r.SHA256)
	}
	return raw, c.write(file, raw)
}

func sumOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// The type `packed` is a module of a forge.
type packed struct {
	cache Cache
	forge string
	release
}

// The method `files` returns the files of the module.
func (p packed) files(ctx context.Context) (files, error) {
	if of, known := p.cache.tree(p.SHA256); known {
		return of, nil
	}
	raw, err := p.cache.archive(ctx, p.forge, p.release)
	if err != nil {
		return nil, err
	}
	out := files{}
	if err := unpack(raw, func(name string, f tutti.CodeFile, content []byte) error {
		if f.Link == "" {
			f.Digest, f.Size = tutti.DigestOf(content), int64(len(content))
		}
		out[name] = entry{CodeFile: f, Blob: name}
		return nil
	}); err != nil {
		return nil, err
	}
	return out, p.cache.keepTree(p.SHA256, out)
}

// The method `blobs` reads files of the module, and passes each with its names to a function.
func (p packed) blobs(ctx context.Context, want map[string][]string, do func(names []string, content []byte) error) error {
	raw, err := p.cache.archive(ctx, p.forge, p.release)
	if err != nil {
		return err
	}
	return unpack(raw, func(name string, f tutti.CodeFile, content []byte) error {
		if names := want[name]; names != nil && f.Link == "" {
			return do(names, content)
		}
		return nil
	})
}

// The function `unpack` reads a module's archive. All its files are below one directory, which is left out.
func unpack(raw []byte, do func(name string, f tutti.CodeFile, content []byte) error) error {
	packed, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "the archive of the module")
	}
	bounded := &io.LimitedReader{R: packed, N: maxUnpacked}
	in := tar.NewReader(bounded)
	for {
		head, err := in.Next()
		switch {
		case errors.Is(err, io.EOF) && bounded.N > 0:
			return nil
		case bounded.N <= 0:
			return tutti.Errorf(tutti.CodeInvalid, "the archive of the module has more than %d bytes", maxUnpacked)
		case err != nil:
			return tutti.Wrap(tutti.CodeInvalid, err, "the archive of the module")
		}
		_, name, below := strings.Cut(path.Clean(head.Name), "/")
		if !below {
			continue
		}
		f := tutti.CodeFile{Exec: head.FileInfo().Mode()&0o111 != 0}
		switch head.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink:
			f = tutti.CodeFile{Link: head.Linkname}
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		default:
			return tutti.Errorf(tutti.CodeInvalid, "the archive of the module has %q, which is neither a file nor a link", name)
		}
		if head.Size > maxFile {
			return tutti.Errorf(tutti.CodeInvalid, "the archive of the module: %q has %d bytes, at most %d", name, head.Size, maxFile)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("the archive of the module: %q: %w", name, err)
		}
		if err := do(name, f, content); err != nil {
			return err
		}
	}
}
