// Command packages builds Tutti's packages for Debian and EL.
//
//	packages -version 1.2.3 -out DIR           deb and rpm for amd64 and arm64, SBOMs, SHA256SUMS, its signature
//	packages -version 1.2.3 -out DIR -only deb one package, for this machine's architecture
//
// Two builds of one commit with one release of Go give the same bytes, in any directory and on any
// machine. SOURCE_DATE_EPOCH is the time of all files, by default the time of the commit. PACKAGE_KEY
// names a file with an SSH key that signs SHA256SUMS. deploy/nfpm.yaml defines the content.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

func main() {
	version := flag.String("version", "", "the version, like 1.2.3 or what git describe prints")
	out := flag.String("out", "bin/packages", "the directory for the packages")
	only := flag.String("only", "", "deb or rpm: build only this package, for this machine's architecture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *version, *out, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, version, out, only string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	b, err := newBuild(ctx, ".", version, out)
	if err != nil {
		return err
	}
	switch only {
	case "":
		return b.all(ctx, os.Getenv("PACKAGE_KEY"))
	case "deb", "rpm":
		if !known(runtime.GOARCH) {
			return fmt.Errorf("no packages for %s: Tutti has packages for %v", runtime.GOARCH, architectures)
		}
		_, err := b.packages(ctx, runtime.GOARCH, only)
		return err
	}
	return fmt.Errorf("-only %q: the packages are deb and rpm", only)
}
