package httpapi

import (
	"context"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// noCall begins the error of a server that does not know a call.
const noCall = "no call "

// The type `pictures` has the method of a Client about pictures.
type pictures struct{ c *Client }

// Picture implements tutti.Explains. CodeConflict: the server does not know the call, because it is older.
func (p pictures) Picture(ctx context.Context, target string) (api.Picture, error) {
	out, err := ask[api.Picture](ctx, p.c, callPicture, target)
	if tutti.CodeOf(err) == tutti.CodeNotFound && strings.HasPrefix(err.Error(), noCall) {
		return out, tutti.Errorf(tutti.CodeConflict, "the server at %s is too old to draw a picture: upgrade it, or use: tutti graph --dot", p.c.base)
	}
	return out, err
}
