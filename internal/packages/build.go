package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// These tools run like golangci-lint: `go run` gets them by their version, and go.mod does not name them.
const (
	nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"
	sbom = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
)

var (
	architectures = []string{"amd64", "arm64"}
	formats       = []string{"deb", "rpm"}

	// machines has rpm's names of the architectures.
	machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
)

func known(arch string) bool { return slices.Contains(architectures, arch) }

// build is one build of packages.
type build struct {
	root    string // the top of the source tree
	out     string
	program string // the version of the program
	version string // the version of the packages
	epoch   string // the time of all files, in seconds since 1970
}

func newBuild(ctx context.Context, root, version, out string) (*build, error) {
	mapped, err := packageVersion(version)
	if err != nil {
		return nil, err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
		cmd.Dir = root
		said, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("time of the commit: git log: %w; without a git repository set SOURCE_DATE_EPOCH to the release's time, in seconds since 1970", err)
		}
		epoch = strings.TrimSpace(string(said))
	}
	if n, err := strconv.ParseInt(epoch, 10, 64); err != nil || n <= 0 {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH=%q: write seconds since 1970", epoch)
	}
	return &build{root: root, out: out, program: programVersion(version), version: mapped, epoch: epoch}, os.MkdirAll(out, 0o755)
}

// The method `all` builds all packages, an SBOM for each program, and SHA256SUMS. The key may be empty.
func (b *build) all(ctx context.Context, key string) error {
	var files []string
	for _, arch := range architectures {
		made, err := b.packages(ctx, arch, formats...)
		if err != nil {
			return err
		}
		files = append(files, made...)
	}
	if err := writeSums(b.out, files); err != nil {
		return err
	}
	if key == "" {
		fmt.Println("packages:", sumsFile, "is not signed; to sign it, set PACKAGE_KEY to a file with an SSH key")
		return nil
	}
	if err := sign(ctx, b.out, key); err != nil {
		return err
	}
	fmt.Println("packages: signed", filepath.Join(b.out, sumsFile))
	return nil
}

// The method `packages` builds the program for an architecture, and packages of these formats. If there
// are packages of both formats, the method also writes the program's SBOM. The method returns the names
// of the files that it wrote.
func (b *build) packages(ctx context.Context, arch string, formats ...string) ([]string, error) {
	tree, err := os.MkdirTemp("", "tutti-packages-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tree) }() // a temporary directory
	if err := b.compile(ctx, arch, filepath.Join(tree, "tutti")); err != nil {
		return nil, err
	}
	if err := copyFiles(b.root, tree); err != nil {
		return nil, err
	}
	var made []string
	for _, format := range formats {
		name := b.fileName(format, arch)
		if err := b.pack(ctx, tree, format, arch, filepath.Join(b.out, name)); err != nil {
			return nil, err
		}
		made = append(made, name)
	}
	if len(formats) > 1 {
		name := fmt.Sprintf("tutti_%s_linux_%s.cdx.json", b.version, arch)
		if err := b.writeSBOM(ctx, tree, arch, filepath.Join(b.out, name)); err != nil {
			return nil, err
		}
		made = append(made, name)
	}
	for _, name := range made {
		fmt.Println(filepath.Join(b.out, name))
	}
	return made, nil
}

func (b *build) fileName(format, arch string) string {
	if format == "rpm" {
		return fmt.Sprintf("tutti-%s-1.%s.rpm", b.version, machines[arch])
	}
	return fmt.Sprintf("tutti_%s_%s.deb", b.version, arch)
}

// The method `compile` builds the program. The builder's own settings of Go have no effect on the result,
// except for the release of Go. The version control's stamp is off, so that a build from an archive of
// the source gives the same program.
func (b *build) compile(ctx context.Context, arch, to string) error {
	return command(ctx, b.root, []string{"GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOWORK=off"},
		"go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X github.com/tutti-project/tutti/internal/app.Version="+b.program, "-o", to, "./cmd/tutti")
}

// copyFiles copies everything else that deploy/nfpm.yaml names into the directory `tree`. Packages have
// the program in /usr/bin.
func copyFiles(root, tree string) error {
	for _, pattern := range []string{"LICENSE", "deploy/deb/*", "deploy/rpm/*", "deploy/*.service", "deploy/*.timer"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%s: there is no such file in %s", pattern, root)
		}
		for _, from := range found {
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			to := filepath.Base(from)
			switch dir := filepath.Base(filepath.Dir(from)); dir {
			case "deb", "rpm":
				to = filepath.Join(dir, to)
			case "deploy":
				to = filepath.Join("units", to)
				text = bytes.ReplaceAll(text, []byte("ExecStart=/usr/local/bin/tutti "), []byte("ExecStart=/usr/bin/tutti "))
			}
			to = filepath.Join(tree, to)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *build) pack(ctx context.Context, tree, format, arch, to string) error {
	return command(ctx, tree, []string{"GOFLAGS=", "SOURCE_DATE_EPOCH=" + b.epoch, "PACKAGE_VERSION=" + b.version, "PACKAGE_ARCH=" + arch},
		"go", "run", nfpm, "package", "--config", filepath.Join(b.root, "deploy", "nfpm.yaml"), "--packager", format, "--target", to)
}

// writeSBOM writes the modules in the program, as CycloneDX. The tool reads the architecture from its
// environment, and not from the program.
func (b *build) writeSBOM(ctx context.Context, tree, arch, to string) error {
	made := filepath.Join(tree, "sbom.json")
	if err := command(ctx, tree, []string{"GOFLAGS="}, "go", "run", "-exec", "env GOOS=linux GOARCH="+arch, sbom,
		"bin", "-json", "-std", "-noserial", "-notimestamp", "-version", b.program, "-output", made, filepath.Join(tree, "tutti")); err != nil {
		return err
	}
	text, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	text, err = withoutTool(text)
	if err != nil {
		return fmt.Errorf("%s: %w", sbom, err)
	}
	return os.WriteFile(to, text, 0o644)
}

// withoutTool removes the hashes of the tool that wrote the SBOM. They differ between two machines,
// because each machine builds the tool itself.
func withoutTool(text []byte) ([]byte, error) {
	var bom map[string]any
	if err := json.Unmarshal(text, &bom); err != nil {
		return nil, err
	}
	metadata, _ := bom["metadata"].(map[string]any)
	tools, _ := metadata["tools"].([]any)
	if len(tools) != 1 {
		return nil, fmt.Errorf("the SBOM names %d tools, want 1", len(tools))
	}
	tool, _ := tools[0].(map[string]any)
	delete(tool, "hashes")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// The function `command` runs a command. An error has the command's output.
func command(ctx context.Context, dir string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args[:min(len(args), 3)], " "), err, said)
	}
	return nil
}
