package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	sumsFile = "SHA256SUMS"

	// A signature is valid only for its namespace, so that nobody can pass on another signature by the
	// same key, for example of a commit.
	namespace = "tutti-release"
)

// writeSums writes the checksums of these files, in the form that sha256sum -c reads. It removes the
// signature of a previous build.
func writeSums(dir string, files []string) error {
	var lines strings.Builder
	for _, name := range slices.Sorted(slices.Values(files)) {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, name)
	}
	if err := os.Remove(filepath.Join(dir, sumsFile+".sig")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(lines.String()), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

// The function `sign` writes SHA256SUMS.sig. ssh-keygen reads the key from its file, and asks at the
// terminal for the key's passphrase. The file may also have a public key whose private key is in an SSH agent.
func sign(ctx context.Context, dir, key string) error {
	key, err := filepath.Abs(key)
	if err != nil {
		return err
	}
	if _, err := os.Stat(key); err != nil {
		return fmt.Errorf("PACKAGE_KEY: %w", err)
	}
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", key, filepath.Join(dir, sumsFile))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sign %s: ssh-keygen: %w", sumsFile, err)
	}
	return nil
}
