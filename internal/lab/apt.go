package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// archive is a Debian archive from the apt configuration of the outer machine.
type archive struct {
	uri      string
	keyring  string // if keyring is empty, apt and debootstrap use their default
	security bool
}

// debianKeyring contains the keys of all Debian releases. debootstrap uses this file by default.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// archives returns the archives from which bases are installed, the main archive first. If a mirror is given,
// the only archive is the mirror. Otherwise the archives come from the machine's own apt configuration.
func archives(ctx context.Context, mirror string) ([]archive, error) {
	if mirror != "" {
		return []archive{{uri: mirror, keyring: existing(debianKeyring)}}, nil
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "Created-By: Packages").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get indextargets: %w", err)
	}
	found := parseTargets(out)
	if len(found) == 0 || found[0].security {
		return nil, tutti.Errorf(tutti.CodeInvalid, "this machine's apt configuration names no Debian archive: name one with `mirror:` in the lab file")
	}
	return found, nil
}

// parseTargets parses the output of `apt-get indextargets`. parseTargets returns Debian's main archive
// and, if it is configured, the security archive. Before the first apt-get update, stanzas have no
// label. parseTargets accepts a stanza without a label if its release is a Debian release.
func parseTargets(out []byte) []archive {
	var found []archive
	stanza := map[string]string{}
	end := func() {
		a, ok := asArchive(stanza)
		if ok && !slices.ContainsFunc(found, func(b archive) bool { return b.security == a.security }) {
			found = append(found, a)
		}
		clear(stanza)
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		key, value, ok := strings.Cut(s.Text(), ": ")
		if !ok {
			end()
			continue
		}
		stanza[key] = value
	}
	end()
	slices.SortStableFunc(found, func(a, b archive) int { return btoi(a.security) - btoi(b.security) })
	return found
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func asArchive(stanza map[string]string) (archive, bool) {
	release, security := strings.CutSuffix(stanza["Release"], "-security")
	debian := slices.Contains([]string{"Debian", "Debian-Security"}, stanza["Label"]) ||
		stanza["Label"] == "" && slices.Contains(Releases, release)
	if !debian || stanza["Component"] != "main" || strings.Contains(release, "-") {
		return archive{}, false
	}
	a := archive{uri: stanza["Repo-URI"], keyring: stanza["Signed-By"], security: security}
	if !strings.HasPrefix(a.keyring, "/") { // a fingerprint, or empty
		a.keyring = existing(debianKeyring)
	}
	return a, a.uri != ""
}

func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// The function `sources` returns the sources.list for hosts with this release. A host verifies packages with the
// keyring of its own release, which is at Debian's usual path.
func sources(archives []archive, release string) string {
	var b strings.Builder
	for _, a := range archives {
		if a.security {
			fmt.Fprintf(&b, "deb %s %s-security main\n", a.uri, release)
			continue
		}
		fmt.Fprintf(&b, "deb %s %s main\n", a.uri, release)
		fmt.Fprintf(&b, "deb %s %s-updates main\n", a.uri, release)
	}
	return b.String()
}

// handedOn are the names of the settings that hosts copy from the outer machine's apt. Without these settings, hosts
// may be unable to reach the outer machine's archives, or the archives may refuse the hosts.
var handedOn = []string{
	"Acquire::http::Proxy", "Acquire::https::Proxy",
	"Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::Retries",
}

// aptSettings returns an apt.conf for hosts, with the proxy and the date checks of the outer machine.
func aptSettings(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire").Output()
	if err != nil {
		return "", fmt.Errorf("apt-config dump: %w", err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		key, _, _ := strings.Cut(line, " ")
		if slices.ContainsFunc(handedOn, func(k string) bool { return strings.EqualFold(k, key) }) {
			b.WriteString(line)
		}
	}
	// This line avoids descriptions in other languages. They would be half of the data of an update.
	b.WriteString("Acquire::Languages \"none\";\n")
	return b.String(), nil
}

// proxyEnv returns apt's proxy as environment variables. debootstrap has no other setting for a proxy.
func proxyEnv(settings string) []string {
	for line := range strings.Lines(settings) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.EqualFold(key, "Acquire::http::Proxy") {
			return []string{"http_proxy=" + strings.Trim(value, `";`)}
		}
	}
	return nil
}
