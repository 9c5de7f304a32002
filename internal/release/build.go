package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildFrom builds the program of the release from its commit in the repository at root.
// BuildFrom writes the program to the file `out`, and the source of the release to the directory
// `work`. The commit must be in the history of the clone.
func (r Release) BuildFrom(ctx context.Context, root, work, out string) error {
	source, err := r.source(ctx, root, work)
	if err != nil {
		return err
	}
	return Build(ctx, source, out, "internal/app.Version="+r.Version)
}

// BuildDeb builds the Debian package of the release for this machine, as the release itself builds the
// package. BuildDeb writes the package to the directory `out`, and the source to the directory `work`.
func (r Release) BuildDeb(ctx context.Context, root, work, out string) error {
	source, err := r.source(ctx, root, work)
	if err != nil {
		return err
	}
	args := []string{"env", "SOURCE_DATE_EPOCH=1", "go", "run", "./internal/packages", "-version", r.Version, "-only", "deb", "-out", out}
	const script = "script/build-deb" // builds the package of release 0.2.0
	if _, err := os.Stat(filepath.Join(source, script)); err == nil {
		args = []string{script, r.Version, out}
	}
	if said, err := command(ctx, source, args...); err != nil {
		return fmt.Errorf("package of release %s: %w: %s", r.Version, err, said)
	}
	return nil
}

// The method `source` writes the source of the release to a directory below `work`, and returns this
// directory.
func (r Release) source(ctx context.Context, root, work string) (string, error) {
	if said, err := command(ctx, root, "git", "cat-file", "-e", r.Commit+"^{commit}"); err != nil {
		return "", fmt.Errorf("release %s is commit %s, which this clone does not have; fetch the history: git fetch --unshallow origin (%w: %s)", r.Version, r.Commit, err, said)
	}
	archive := filepath.Join(work, "source.tar")
	source := filepath.Join(work, "source")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"git", "archive", "--output", archive, r.Commit},
		{"tar", "-x", "-f", archive, "-C", source},
	} {
		if said, err := command(ctx, root, args...); err != nil {
			return "", fmt.Errorf("source of release %s: %s: %w: %s", r.Version, args[0], err, said)
		}
	}
	return source, os.Remove(archive)
}

// WithoutDebug is an argument `variables` for Build. Agents of release 0.2.0 do not report their capabilities. A
// server that is built with WithoutDebug assumes that these agents do not know the option `debug`. Agents of later
// releases report their capabilities. As soon as 0.3.0 is the last release, the tests need another option that 0.3.0
// lacks.
const WithoutDebug = ".firstRelease=run noop compile puppet_agent tags skip_tags fresh_facts exclusive " +
	"remote.disable remote.enable remote.facts remote.last_run_summary remote.resource remote.runonce remote.status"

// Build builds the program of a source tree, and writes it to the file `out`. Each variable has the
// form PACKAGE.NAME=VALUE, where PACKAGE is a directory, or .NAME=VALUE for the root package.
func Build(ctx context.Context, source, out string, variables ...string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	flags := "-s -w"
	for _, v := range variables {
		path := "github.com/tutti-project/tutti"
		if v[0] != '.' {
			path += "/"
		}
		flags += fmt.Sprintf(" -X '%s%s'", path, v)
	}
	if said, err := command(ctx, source, "go", "build", "-trimpath", "-ldflags", flags, "-o", out, "./cmd/tutti"); err != nil {
		return fmt.Errorf("build %s: %w: %s", source, err, said)
	}
	return nil
}

func command(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	return cmd.CombinedOutput()
}
