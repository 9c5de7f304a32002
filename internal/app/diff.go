package app

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/control"
	"github.com/tutti-project/tutti/internal/operator"
)

// diffCode finds the code that an operator names: a directory, a code or an environment of the server, or a commit. It sends
// the code and signs the permission to compile it.
func diffCode(ctx context.Context, s cli.Server, c cli.Connection, in cli.DiffCode) (cli.DiffSide, error) {
	out, manifest, read, err := namedCode(ctx, s, c, in)
	if err != nil {
		return out, err
	}
	out.Code, err = operator.PermitCompile(ctx, s, c.OperatorDir, manifest, read, time.Now().Add(in.For))
	return out, err
}

func namedCode(ctx context.Context, s cli.Server, c cli.Connection, in cli.DiffCode) (cli.DiffSide, tutti.CodeManifest, operator.ReadFiles, error) {
	if info, err := os.Stat(in.Name); in.Name != "" && err == nil && info.IsDir() {
		manifest, read, err := operator.DirectoryFor(in.Name, in.Environment)
		return cli.DiffSide{Name: in.Name, Source: control.SourceOf(ctx, in.Name)}, manifest, read, err
	}
	kept, err := keptCode(ctx, s, in)
	switch code := tutti.CodeOf(err); {
	case err == nil:
		manifest, read, err := operator.KeptFor(ctx, s, c.OperatorDir, kept, in.Environment)
		return cli.DiffSide{Name: in.Name, Source: kept.Source}, manifest, read, err
	case in.Name == "" || code != tutti.CodeInvalid && code != tutti.CodeNotFound:
		return cli.DiffSide{}, tutti.CodeManifest{}, nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return cli.DiffSide{}, tutti.CodeManifest{}, nil, tutti.Wrap(tutti.CodeInvalid, err, "the directory for fetched repositories")
	}
	built, err := control.Build(ctx, control.Request{
		Cache: control.Cache{Dir: filepath.Join(cache, "tutti")}, Dir: ".", Ref: in.Name, Environment: in.Environment,
	})
	if err != nil {
		return cli.DiffSide{}, tutti.CodeManifest{}, nil, tutti.Wrap("", err, "%q is no directory, and no code or environment of the server (tutti code list); as a commit", in.Name)
	}
	return cli.DiffSide{Name: in.Name, Source: &built.Source}, built.Manifest, built.Read, nil
}

// keptCode asks the server for the code with this digest, or for the last push of the environment with this name.
func keptCode(ctx context.Context, s cli.Server, in cli.DiffCode) (api.CodeKept, error) {
	if in.Name == "" {
		return s.GetCode(ctx, api.CodeQuery{Environment: in.Environment})
	}
	kept, err := s.GetCode(ctx, api.CodeQuery{Code: in.Name})
	if code := tutti.CodeOf(err); code == tutti.CodeInvalid || code == tutti.CodeNotFound {
		return s.GetCode(ctx, api.CodeQuery{Environment: in.Name})
	}
	return kept, err
}
