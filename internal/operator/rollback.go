package operator

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// RollbackTo names the code of an environment.
type RollbackTo = cli.RollbackTo

// Rollback signs an earlier code of an environment again, with a higher counter, and makes it the latest code. The server
// has the files. Rollback signs only what a key that is trusted now has signed for this environment: a server that was
// taken over must not choose what an operator signs.
func Rollback(ctx context.Context, server cli.Server, dir string, in RollbackTo) (tutti.CodePushed, error) {
	kept, err := server.GetCode(ctx, api.CodeQuery{Environment: in.Environment, Code: string(in.Code)})
	if err != nil {
		return tutti.CodePushed{}, err
	}
	signer, err := NewSigner(ctx, server, dir)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	digest := tutti.DigestOf(kept.Manifest)
	const hint = "push it from its source instead: tutti code push"
	if kept.Statement == nil {
		return tutti.CodePushed{}, tutti.Errorf(tutti.CodeRefused, "the code %.19s was pushed by release 0.2.0 or older, without a statement; %s", digest, hint)
	}
	said, err := signer.Known.Said(*kept.Statement)
	switch {
	case err != nil:
		return tutti.CodePushed{}, tutti.Wrap(tutti.CodeRefused, err, "the code %.19s is not signed with a key that is trusted now; %s", digest, hint)
	case said.Digest != digest || said.Environment != in.Environment || in.Code != digest:
		return tutti.CodePushed{}, tutti.Errorf(tutti.CodeRefused, "asked for the code %.19s of environment %s, the server shows the code %.19s with a signature for %.19s of environment %s: nothing is signed",
			in.Code, in.Environment, digest, said.Digest, said.Environment)
	}
	signed, err := signer.Code(said.Environment, kept.Manifest)
	if err != nil {
		return tutti.CodePushed{}, err
	}
	return server.PushCode(ctx, tutti.CodePush{SignedCode: signed, Source: kept.Source})
}
