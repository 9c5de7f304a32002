package operator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// DirectoryFor reads the code in a directory as code of an environment.
func DirectoryFor(dir, environment string) (tutti.CodeManifest, ReadFiles, error) {
	manifest, files, err := readCode(dir, environment)
	return manifest, readFrom(files), err
}

// KeptFor returns code that was pushed as code of an environment. The server has its files. KeptFor returns CodeRefused if no
// key that is trusted now has signed the code: a server that was taken over must not choose what an operator signs.
func KeptFor(ctx context.Context, server cli.Server, dir string, kept api.CodeKept, environment string) (tutti.CodeManifest, ReadFiles, error) {
	var manifest tutti.CodeManifest
	signer, err := NewSigner(ctx, server, dir)
	if err != nil {
		return manifest, nil, err
	}
	if _, err := signer.Known.Code(kept.SignedCode); err != nil {
		return manifest, nil, tutti.Wrap(tutti.CodeRefused, err, "the code %.19s is not signed with a key that is trusted now; name its directory or its commit instead", kept.Code)
	}
	if got := tutti.DigestOf(kept.Manifest); got != kept.Code {
		return manifest, nil, tutti.Errorf(tutti.CodeRefused, "asked for the code %.19s, the server shows %.19s: nothing is signed", kept.Code, got)
	}
	if err := json.Unmarshal(kept.Manifest, &manifest); err != nil {
		return manifest, nil, tutti.Wrap(tutti.CodeDamaged, err, "the list of the files of %.19s", kept.Code)
	}
	manifest.Environment = environment
	return manifest, func(context.Context, map[tutti.Digest]bool, func([]byte) error) error {
		return tutti.Errorf(tutti.CodeDamaged, "the server lacks files of the code %.19s, which it should keep", kept.Code)
	}, nil
}

// PermitCompile sends code to the server, and signs the permission to compile it until a time.
func PermitCompile(ctx context.Context, server cli.Server, dir string, manifest tutti.CodeManifest, read ReadFiles, until time.Time) (tutti.SignedCode, error) {
	if err := sendFiles(ctx, server, manifest, func(ctx context.Context, want map[tutti.Digest]bool, do func([]byte) error) error {
		if len(want) == 0 {
			return nil
		}
		return read(ctx, want, do)
	}); err != nil {
		return tutti.SignedCode{}, err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return tutti.SignedCode{}, err
	}
	signer, err := NewSigner(ctx, server, dir)
	if err != nil {
		return tutti.SignedCode{}, err
	}
	return signer.Compile(manifest.Environment, raw, until)
}
