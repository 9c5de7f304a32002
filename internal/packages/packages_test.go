package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

var versionCases = []struct{ reason, version, want string }{
	{"a commit, no release", "b3e2dc84", "0~b3e2dc84"},
	{"a commit that begins with digits", "12345678-dirty", "0~12345678+0.dirty"},
	{"no repository", "dev", "0~dev"},
	{"a candidate", "v1.2.3-rc.1", "1.2.3~rc.1"},
	{"a later candidate, with a hyphen", "1.2.3-rc-2", "1.2.3~rc.2"},
	{"commits after a candidate", "v1.2.3-rc-2-3-gabcdef0", "1.2.3~rc.2+3.gabcdef0"},
	{"a release", "v1.2.3", "1.2.3"},
	{"the release, changed", "1.2.3-dirty", "1.2.3+0.dirty"},
	{"commits after a release", "v1.2.3-4-gabcdef0", "1.2.3+4.gabcdef0"},
	{"more commits, changed", "v1.2.3-10-gabcdef0-dirty", "1.2.3+10.gabcdef0.dirty"},
}

// TestPackageVersion checks the versions of packages. TestOrderOfVersions checks their order.
func TestPackageVersion(t *testing.T) {
	for _, tc := range versionCases {
		if got, err := packageVersion(tc.version); got != tc.want || err != nil {
			t.Errorf("%s: %q is %q, %v; want %q", tc.reason, tc.version, got, err, tc.want)
		}
	}
	for reason, version := range map[string]string{"empty": "", "a space": "1.2.3 4", "a slash": "feature/x", "an epoch": "1:2.3"} {
		if got, err := packageVersion(version); err == nil {
			t.Errorf("%s: %q is %q, want an error", reason, version, got)
		}
	}
}

// content is one entry of deploy/nfpm.yaml.
type content struct {
	Src, Dst, Packager string
	Info               struct{ Mode os.FileMode } `yaml:"file_info"`
}

// TestPackagesHaveEveryUnit checks that both packages have each unit in the directory deploy, that the
// units start the packaged program, and that each file has a mode.
func TestPackagesHaveEveryUnit(t *testing.T) {
	tree := t.TempDir()
	if err := copyFiles(root, tree); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Contents  []content
		Overrides map[string]struct{ Scripts map[string]string }
	}
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "nfpm.yaml"))
	if err == nil {
		err = yaml.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	var units []string
	entries, err := os.ReadDir(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(root, "deploy", e.Name()))
		if err == nil && bytes.HasPrefix(text, []byte("[Unit]\n")) {
			units = append(units, e.Name())
		}
	}
	if len(units) < 4 {
		t.Fatalf("units in deploy: %q", units)
	}
	for format, dir := range map[string]string{"deb": "/lib/systemd/system", "rpm": "/usr/lib/systemd/system"} {
		var have []string
		for _, c := range config.Contents {
			if c.Info.Mode == 0 {
				t.Errorf("%s has no mode: the mode would depend on the builder's umask", c.Src)
			}
			if c.Packager != format || c.Dst != dir {
				continue
			}
			found, err := filepath.Glob(filepath.Join(tree, c.Src))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				have = append(have, filepath.Base(f))
				text, err := os.ReadFile(f)
				if err != nil || bytes.Contains(text, []byte("/usr/local/bin")) {
					t.Errorf("%s in the package names a program outside of the package: %v\n%s", f, err, text)
				}
			}
		}
		if diff := cmp.Diff(units, slices.Sorted(slices.Values(have))); diff != "" {
			t.Errorf("units in the %s: -deploy +package\n%s", format, diff)
		}
		if got := len(config.Overrides[format].Scripts); got != 3 {
			t.Errorf("the %s has %d maintainer scripts, want 3", format, got)
		}
		for _, script := range config.Overrides[format].Scripts {
			if _, err := os.Stat(filepath.Join(tree, script)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMaintainerScripts runs the scripts as dpkg and rpm call them, with a fake systemctl.
func TestMaintainerScripts(t *testing.T) {
	const (
		reload  = "systemctl --system daemon-reload\n"
		disable = "systemctl --system --quiet disable --now tutti-agent.service tutti-server.service tutti-backup.timer\n"
	)
	for _, tc := range []struct {
		reason, script string
		args           []string
		want           string
	}{
		{"a new installation starts nothing", "deb/postinst", []string{"configure", ""}, reload},
		{"an upgrade restarts what runs", "deb/postinst", []string{"configure", "0.2.0"}, reload + "deb-systemd-invoke try-restart tutti-agent.service tutti-server.service\n"},
		{"dpkg goes back after an error", "deb/postinst", []string{"abort-upgrade", "1.0.0"}, ""},
		{"a removal stops and disables", "deb/prerm", []string{"remove"}, disable},
		{"an upgrade stops nothing", "deb/prerm", []string{"upgrade", "1.0.0"}, ""},
		{"after a removal", "deb/postrm", []string{"remove"}, reload},
		{"after a purge the data stays", "deb/postrm", []string{"purge"}, reload},
		{"a new installation starts nothing", "rpm/post", []string{"1"}, reload},
		{"an upgrade restarts what runs", "rpm/post", []string{"2"}, reload + "systemctl --system try-restart tutti-agent.service tutti-server.service\n"},
		{"the upgrade of an rpm that is installed twice", "rpm/post", []string{"3"}, reload + "systemctl --system try-restart tutti-agent.service tutti-server.service\n"},
		{"a removal stops and disables", "rpm/preun", []string{"0"}, disable},
		{"an upgrade stops nothing", "rpm/preun", []string{"1"}, ""},
		{"after a removal the data stays", "rpm/postun", []string{"0"}, reload},
		{"after an upgrade", "rpm/postun", []string{"1"}, reload},
	} {
		name := fmt.Sprintf("%s %q: %s", tc.script, tc.args, tc.reason)
		if got, code := runScript(t, tc.script, true, 0, tc.args...); got != tc.want || code != 0 {
			t.Errorf("%s: exit code %d, and it ran\n%swant\n%s", name, code, got, tc.want)
		}
		if got, code := runScript(t, tc.script, false, 0, tc.args...); got != "" || code != 0 {
			t.Errorf("%s, without systemd: exit code %d, and it ran\n%s", name, code, got)
		}
		_, code := runScript(t, tc.script, true, 1, tc.args...)
		if fails := strings.HasPrefix(tc.script, "deb/") && tc.want != ""; (code != 0) != fails {
			t.Errorf("%s, with a systemctl that fails: exit code %d; a script of a deb fails, a scriptlet of an rpm does not", name, code)
		}
	}
}

// runScript runs a maintainer script. It returns the commands that the script ran, and its exit code. The
// argument `systemd` says whether systemd runs, and `fails` is the exit code of the commands.
func runScript(t *testing.T, script string, systemd bool, fails int, args ...string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	log, running := filepath.Join(dir, "log"), filepath.Join(dir, "run")
	if systemd {
		if err := os.Mkdir(running, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"systemctl", "deb-systemd-invoke"} {
		fake := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >> %s\nexit %d\n", name, log, fails)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fake), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", script))
	if err != nil {
		t.Fatal(err)
	}
	here := strings.ReplaceAll(string(text), "/run/systemd/system", running)
	if here == string(text) {
		t.Fatalf("%s does not ask whether systemd runs", script)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", here, script}, args...)...)
	cmd.Env = []string{"PATH=" + dir}
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		t.Errorf("%s %q printed %s, %v", script, args, out, err)
	}
	said, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(said), cmd.ProcessState.ExitCode()
}

// TestSignedSums signs checksums, and then changes them, the key and the namespace.
func TestSignedSums(t *testing.T) {
	dir := t.TempDir()
	key, signers := filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	mustRun(t, dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("signers", `tutti namespaces="`+namespace+`" `+string(public))
	write("a.deb", "a\n")
	write("b.rpm", "b\n")
	if err := writeSums(dir, []string{"b.rpm", "a.deb"}); err != nil {
		t.Fatal(err)
	}
	if err := sign(t.Context(), dir, key); err != nil {
		t.Fatal(err)
	}
	mustRun(t, dir, "sha256sum", "--strict", "-c", sumsFile)
	verify := func(namespace string) error {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "tutti", "-n", namespace, "-s", filepath.Join(dir, sumsFile+".sig"))
		sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = bytes.NewReader(sums)
		return cmd.Run()
	}
	if err := verify(namespace); err != nil {
		t.Errorf("the signature is not valid: %v", err)
	}
	if err := verify("git"); err == nil {
		t.Error("the signature is valid in another namespace")
	}
	sums, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		t.Fatal(err)
	}
	write(sumsFile, strings.Replace(string(sums), "a.deb", "c.deb", 1))
	if err := verify(namespace); err == nil {
		t.Error("the signature is valid for other checksums")
	}
	write("b.rpm", "B\n")
	if err := writeSums(dir, []string{"b.rpm", "a.deb"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile+".sig")); err == nil {
		t.Error("new checksums keep the old signature")
	}
	if err := sign(t.Context(), dir, filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "PACKAGE_KEY: ") {
		t.Errorf("without the key: %v", err)
	}
}

// TestSBOMWithoutTool checks that only the hashes of the tool disappear from an SBOM.
func TestSBOMWithoutTool(t *testing.T) {
	const made = `{"metadata": {"tools": [{"name": "cyclonedx-gomod", "version": "v1", "hashes": [{"alg": "MD5", "content": "x"}]}]}, "components": [{"name": "a&b", "hashes": [1]}]}`
	got, err := withoutTool([]byte(made))
	want := strings.Replace(made, `, "hashes": [{"alg": "MD5", "content": "x"}]`, "", 1)
	var wantBOM, gotBOM any
	if err := yaml.Unmarshal([]byte(want), &wantBOM); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(got, &gotBOM); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantBOM, gotBOM); diff != "" || err != nil {
		t.Errorf("%v -want +got\n%s", err, diff)
	}
	if _, err := withoutTool([]byte(`{"metadata": {"tools": {"components": []}}}`)); err == nil {
		t.Error("no error for an SBOM of another form: its hashes would stay")
	}
}

func TestWrongOrders(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tc := range []struct{ reason, version, only, epoch, says string }{
		{"a format that we do not build", "1.2.3", "apk", "1", `-only "apk": the packages are deb and rpm`},
		{"no version", "", "", "1", `version ""`},
		{"a date", "1.2.3", "", "2026-11-29", `SOURCE_DATE_EPOCH="2026-11-29"`},
		{"no repository", "1.2.3", "", "", "set SOURCE_DATE_EPOCH to the release's time"},
	} {
		t.Setenv("SOURCE_DATE_EPOCH", tc.epoch)
		if err := run(t.Context(), tc.version, "out", tc.only); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
}

// mustRun runs a command, and returns its output.
func mustRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
