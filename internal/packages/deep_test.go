//go:build packages

package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/puppet"
)

const (
	oldVersion = "1.0.0"
	newVersion = "1.0.1"
	deepEpoch  = "1700000000"
)

// TestPackages builds all packages from a copy of the tree, and looks at each of them. Then it builds them
// again in another place, and compares.
func TestPackages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("rpm installs into a root only as root")
	}
	first := buildCopy(t, filepath.Join(t.TempDir(), "a"), oldVersion, nil)
	t.Run("all files are there", func(t *testing.T) { testFiles(t, first) })
	for arch, machine := range machines {
		t.Run(arch+" deb", func(t *testing.T) { testDeb(t, filepath.Join(first, "tutti_"+oldVersion+"_"+arch+".deb"), arch) })
		t.Run(arch+" rpm", func(t *testing.T) {
			testRPM(t, filepath.Join(first, "tutti-"+oldVersion+"-1."+machine+".rpm"), arch)
		})
		t.Run(arch+" SBOM", func(t *testing.T) { testSBOM(t, first, arch) })
	}
	t.Run("reproducible", func(t *testing.T) { testSame(t, first) })
}

// buildCopy copies the tree, without its history, to the directory `dir`, and builds the packages there.
// It returns the directory with the packages. The argument `around` is a command that runs the build.
func buildCopy(t *testing.T, dir, version string, around []string, args ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mustRun(t, root, "bash", "-euo", "pipefail", "-c", `git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done |
		tar -c --null -T - -f - | tar -x -m -C "$1"`, "bash", dir)
	out := filepath.Join(dir, "bin", "out")
	cmd := slices.Concat(around, []string{"go", "run", "./internal/packages", "-version", version, "-out", out}, args)
	run := exec.CommandContext(t.Context(), cmd[0], cmd[1:]...)
	run.Dir, run.Env = dir, append(os.Environ(), "SOURCE_DATE_EPOCH="+deepEpoch, "PACKAGE_KEY=")
	if said, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, said)
	}
	return out
}

// testSame builds the packages again, in another directory, with another name of the machine, umask, time
// zone and language, other settings of Go, and with nothing from the first build's cache.
func testSame(t *testing.T, first string) {
	cache := filepath.Join(t.TempDir(), "cache")
	second := buildCopy(t, filepath.Join(t.TempDir(), "another", "longer", "path"), oldVersion, []string{
		"unshare", "--uts", "sh", "-euc", `hostname another; umask 077; exec "$@"`, "sh",
		"env", "TZ=Pacific/Auckland", "LC_ALL=C", "GOFLAGS=-tags=another", "GOAMD64=v2", "GOCACHE=" + cache,
	})
	different, err := differences(first, second)
	if err != nil {
		t.Fatal(err)
	}
	if len(different) > 0 {
		t.Errorf("two builds of one tree differ in %q", different)
	}
}

// testFiles checks the list of files, and that SHA256SUMS names all others.
func testFiles(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{
		"SHA256SUMS", "tutti-1.0.0-1.aarch64.rpm", "tutti-1.0.0-1.x86_64.rpm", "tutti_1.0.0_amd64.deb", "tutti_1.0.0_arm64.deb",
		"tutti_1.0.0_linux_amd64.cdx.json", "tutti_1.0.0_linux_arm64.cdx.json",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
	if ok := strings.Count(mustRun(t, dir, "sha256sum", "--strict", "-c", sumsFile), ": OK\n"); ok != len(want)-1 {
		t.Errorf("%s has %d files, want %d", sumsFile, ok, len(want)-1)
	}
}

// testDeb checks the fields, files and modes of a deb, and that dpkg can install and remove the package.
func testDeb(t *testing.T, deb, arch string) {
	want := strings.ReplaceAll(`tutti 1.0.0 ARCH admin`, "ARCH", arch)
	if got := strings.TrimSpace(mustRun(t, ".", "dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture} ${Section}", deb)); got != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	dir := t.TempDir()
	mustRun(t, dir, "dpkg-deb", "--extract", deb, dir)
	checkFiles(t, dir, map[string]string{
		"usr/bin/tutti":                           "-rwxr-xr-x",
		"lib/systemd/system/tutti-agent.service":  "-rw-r--r--",
		"lib/systemd/system/tutti-backup.service": "-rw-r--r--",
		"lib/systemd/system/tutti-backup.timer":   "-rw-r--r--",
		"lib/systemd/system/tutti-server.service": "-rw-r--r--",
		"usr/share/doc/tutti/copyright":           "-rw-r--r--",
	})
	checkProgram(t, filepath.Join(dir, "usr/bin/tutti"), arch)
	control := t.TempDir()
	mustRun(t, control, "dpkg-deb", "--control", deb, control)
	checkFiles(t, control, map[string]string{
		"control": "-rw-r--r--", "md5sums": "-rw-r--r--", "postinst": "-rwxr-xr-x", "postrm": "-rwxr-xr-x", "prerm": "-rwxr-xr-x",
	})
}

// checkFiles checks which files are in a directory, with which modes and owners.
func checkFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		got[name] = info.Mode().String()
		return err
	})
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("files: %v -want +got\n%s", err, diff)
	}
}

// checkProgram checks for which machine a program is built, and that it needs no libraries.
func checkProgram(t *testing.T, path, arch string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // only read
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; file.Machine != want {
		t.Errorf("the program is for %s, want %s", file.Machine, want)
	}
	for _, section := range file.Progs {
		if section.Type == elf.PT_INTERP {
			t.Error("the program needs a dynamic linker")
		}
	}
}

// testSBOM checks that the SBOM is about this version, architecture and program, and names its modules.
func testSBOM(t *testing.T, dir, arch string) {
	text, err := os.ReadFile(filepath.Join(dir, "tutti_"+oldVersion+"_linux_"+arch+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat    string
		SerialNumber string
		Metadata     struct {
			Timestamp  string
			Component  struct{ Version, Purl string }
			Properties []struct{ Name, Value string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SerialNumber+bom.Metadata.Timestamp != "" {
		t.Errorf("format %q, serial number %q, time %q", bom.BOMFormat, bom.SerialNumber, bom.Metadata.Timestamp)
	}
	if c := bom.Metadata.Component; c.Version != oldVersion || !strings.Contains(c.Purl, "goarch="+arch) {
		t.Errorf("the SBOM is about %+v", c)
	}
	tree := t.TempDir()
	mustRun(t, tree, "dpkg-deb", "--extract", filepath.Join(dir, "tutti_"+oldVersion+"_"+arch+".deb"), tree)
	program, err := sumOf(filepath.Join(tree, "usr/bin/tutti"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(bom.Metadata.Properties, func(p struct{ Name, Value string }) bool {
		return p.Name == "cdx:gomod:binary:hash:SHA-256" && p.Value == program
	}) {
		t.Errorf("the SBOM does not have the checksum of the packaged program, %s", program)
	}
	// `go version -m` prints the modules in the program.
	var want, got []string
	for line := range strings.Lines(mustRun(t, tree, "go", "version", "-m", "usr/bin/tutti")) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			want = append(want, f[1]+" "+f[2])
		}
	}
	for _, c := range bom.Components {
		if c.Name != "std" {
			got = append(got, c.Name+" "+c.Version)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("modules: -program +SBOM\n%s", diff)
	}
	if len(got) == len(bom.Components) {
		t.Error("the SBOM does not name Go's standard library")
	}
}

// testRPM installs, upgrades and removes an rpm in a root with the paths of EL. The root has a real shell
// for the scriptlets, and a fake systemctl. No test has run the rpm on an EL host.
func testRPM(t *testing.T, rpm, arch string) {
	want := "tutti 1.0.0-1 " + machines[arch] + " Apache-2.0 localhost"
	if got := mustRun(t, ".", "rpm", "--query", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST}", "--package", rpm); got != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	el := elRoot(t)
	manage := func(args ...string) string {
		t.Helper()
		return mustRun(t, ".", append([]string{"rpm", "--root", el, "--dbpath", "/var/lib/rpm"}, args...)...)
	}
	asked := func(reason, want string) {
		t.Helper()
		log := filepath.Join(el, "systemctl.log")
		got, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s: the scriptlets called systemctl with\n%swant\n%s", reason, got, want)
		}
		_ = os.Remove(log) // if it stays, the next comparison fails
	}
	here := []string{"--force-debian", "--ignorearch"} // rpm runs on Debian
	const reload = "--system daemon-reload\n"
	manage("--initdb")
	if said := manage(slices.Concat(here, []string{"--install", rpm})...); strings.Contains(said, "scriptlet") {
		t.Errorf("rpm printed %s", said)
	}
	asked("installation", reload)
	wantFiles := `-rwxr-xr-x root root /usr/bin/tutti
-rw-r--r-- root root /usr/lib/systemd/system/tutti-agent.service
-rw-r--r-- root root /usr/lib/systemd/system/tutti-backup.service
-rw-r--r-- root root /usr/lib/systemd/system/tutti-backup.timer
-rw-r--r-- root root /usr/lib/systemd/system/tutti-server.service
-rw-r--r-- root root /usr/share/licenses/tutti/LICENSE
`
	if diff := cmp.Diff(wantFiles, manage("--query", "--queryformat", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]", "tutti")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	manage("--verify", "--nodeps", "tutti") // fails if a file on the disk differs
	checkProgram(t, filepath.Join(el, "usr/bin/tutti"), arch)
	checkUnits(t, el)
	checkPuppet(t, el)
	if arch != "amd64" {
		return // the scriptlets are the same
	}
	if got := mustRun(t, ".", "chroot", el, "/usr/bin/tutti", "--version"); !strings.Contains(got, oldVersion) {
		t.Errorf("the program says version %q", got)
	}
	next := buildCopy(t, filepath.Join(t.TempDir(), "next"), newVersion, nil, "-only", "rpm")
	manage(slices.Concat(here, []string{"--upgrade", filepath.Join(next, "tutti-"+newVersion+"-1."+machines[arch]+".rpm")})...)
	asked("upgrade", reload+"--system try-restart tutti-agent.service tutti-server.service\n"+reload)
	if got := mustRun(t, ".", "chroot", el, "/usr/bin/tutti", "--version"); !strings.Contains(got, newVersion) {
		t.Errorf("after the upgrade the program says version %q", got)
	}
	data := filepath.Join(el, "var/lib/tutti/server/log")
	writeIn(t, el, "var/lib/tutti/server/log", "a fleet's only log", 0o600)
	manage("--erase", "tutti")
	asked("removal", "--system --quiet disable --now tutti-agent.service tutti-server.service tutti-backup.timer\n"+reload)
	if _, err := os.Stat(data); err != nil {
		t.Errorf("the removal took the data: %v", err)
	}
	for _, gone := range []string{"usr/bin/tutti", "usr/lib/systemd/system/tutti-agent.service"} {
		if _, err := os.Stat(filepath.Join(el, gone)); err == nil {
			t.Errorf("after the removal, %s is still there", gone)
		}
	}
}

// elRoot makes a root directory with the paths of an EL host and of the Puppet packages for EL.
func elRoot(t *testing.T) string {
	t.Helper()
	el := t.TempDir()
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib/systemd", "usr/lib64", "etc", "var/lib/rpm", "run/systemd/system", "tmp", "opt/puppetlabs/bin"} {
		if err := os.MkdirAll(filepath.Join(el, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "opt/puppetlabs/bin/puppet": "/opt/puppetlabs/puppet/bin/wrapper.sh",
	} {
		if err := os.Symlink(to, filepath.Join(el, link)); err != nil {
			t.Fatal(err)
		}
	}
	// The shell and its libraries are the only programs of this machine in the root.
	mustRun(t, ".", "sh", "-euc", `shell=$(readlink -f /bin/sh); cp "$shell" "$1/usr/bin/sh"
		ldd "$shell" | grep -o '/[^ ]*' | while read -r lib; do mkdir -p "$1${lib%/*}"; cp -L "$lib" "$1$lib"; done`, "sh", el)
	// systemd-analyze needs the units on which each unit depends.
	mustRun(t, ".", "sh", "-euc", `mkdir "$1/usr/lib/systemd/system"; cp -d /usr/lib/systemd/system/*.target /usr/lib/systemd/system/*.slice "$1/usr/lib/systemd/system"`, "sh", el)
	writeIn(t, el, "usr/bin/systemctl", "#!/bin/sh\necho \"$@\" >> /systemctl.log\n", 0o755)
	writeIn(t, el, "opt/puppetlabs/puppet/bin/puppet", "#!/bin/sh\n", 0o755)
	writeIn(t, el, "opt/puppetlabs/puppet/bin/ruby", "#!/bin/sh\n", 0o755)
	writeIn(t, el, "opt/puppetlabs/puppet/bin/wrapper.sh", "#!/bin/sh\n", 0o755)
	writeIn(t, el, "etc/puppetlabs/puppet/puppet.conf", "[main]\ncertname = el-01.example.net\n", 0o644)
	return el
}

func writeIn(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// checkUnits lets systemd check the installed units. systemd prints a line about a wrong unit, and about a
// program that is not there, but its exit code is not always 1.
func checkUnits(t *testing.T, el string) {
	t.Helper()
	verify := func() string {
		units, err := filepath.Glob(filepath.Join(el, "usr/lib/systemd/system/tutti-*"))
		if err != nil || len(units) != 4 {
			t.Fatalf("units %q, %v", units, err)
		}
		args := []string{"--root=" + el, "verify"}
		for _, u := range units {
			args = append(args, filepath.Base(u))
		}
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%s%v\n", out, err)
		}
		return string(out)
	}
	if said := verify(); said != "" {
		t.Errorf("systemd-analyze verify: %s", said)
	}
	program := filepath.Join(el, "usr/bin/tutti")
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	if said := verify(); !strings.Contains(said, "/usr/bin/tutti is not executable") {
		t.Errorf("without the program, systemd-analyze verify prints %q: it does not check this root", said)
	}
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
}

// checkPuppet checks that the agent would use Puppet and the files of Puppet at EL's paths.
func checkPuppet(t *testing.T, el string) {
	t.Helper()
	found, err := puppet.Find(el)
	if want := filepath.Join(el, "opt/puppetlabs/puppet/bin/puppet"); found.Puppet != want || err != nil {
		t.Errorf("the agent finds %q, %v; want %s", found.Puppet, err, want)
	}
	conf, err := puppet.ReadConfig(el)
	if err != nil || conf.Certname != "el-01.example.net" || !strings.HasSuffix(conf.RunLock, "/opt/puppetlabs/puppet/cache/state/agent_catalog_run.lock") {
		t.Errorf("the agent reads %+v, %v", conf, err)
	}
}

// TestOrderOfVersions lets dpkg and rpm compare each version with the next one of versionCases.
func TestOrderOfVersions(t *testing.T) {
	var versions []string
	for _, tc := range versionCases {
		if strings.HasPrefix(tc.want, "0~") {
			continue // the hashes of commits have no order
		}
		versions = append(versions, tc.want)
	}
	versions = append([]string{"0~b3e2dc84"}, versions...)
	for i, v := range versions[1:] {
		mustRun(t, ".", "dpkg", "--compare-versions", versions[i], "lt", v)
		if got := strings.TrimSpace(mustRun(t, ".", "rpm", "--eval", fmt.Sprintf("%%{lua: print(rpm.vercmp(%q, %q))}", versions[i], v))); got != "-1" {
			t.Errorf("rpm compares %s with %s: %s, want -1", versions[i], v, got)
		}
	}
}

// TestDifferences checks that the comparison of two builds sees each difference.
func TestDifferences(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	writeIn(t, a, "same", "1", 0o600)
	writeIn(t, b, "same", "1", 0o600)
	writeIn(t, a, "changed", "1", 0o600)
	writeIn(t, b, "changed", "2", 0o600)
	writeIn(t, a, "lost", "", 0o600)
	writeIn(t, b, "new", "", 0o600)
	got, err := differences(a, b)
	if diff := cmp.Diff([]string{"changed", "lost", "new"}, got); diff != "" || err != nil {
		t.Errorf("%v -want +got\n%s", err, diff)
	}
}

// The function `differences` returns the names of the files that are not the same in both directories.
func differences(a, b string) ([]string, error) {
	texts := map[string][2][]byte{}
	for i, dir := range []string{a, b} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			both := texts[e.Name()]
			both[i] = append([]byte{'.'}, text...) // an empty file is not the same as no file
			texts[e.Name()] = both
		}
	}
	var found []string
	for name, both := range texts {
		if !bytes.Equal(both[0], both[1]) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found, nil
}
