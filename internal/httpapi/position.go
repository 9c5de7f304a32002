package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
)

// Each request says the last position of the server that the operator has seen. Each
// answer says the present position: `NUMBER RANDOM SEQ LINK` (ADR 0018). A server that was set back
// refuses the request.
const (
	headerSeen     = "Tutti-Seen"
	headerPosition = "Tutti-Position"
)

// Witness keeps the highest seen position of a server. Its methods may be called concurrently.
type Witness interface {
	Seen() tutti.Position
	// See gets the position of each answer and keeps the highest.
	See(tutti.Position)
}

func setPosition(h http.Header, name string, p tutti.Position) {
	if p.Epoch.Number > 0 {
		h.Set(name, fmt.Sprintf("%d %s %d %s", p.Epoch.Number, p.Epoch.Random, p.Seq, p.Link))
	}
}

// positionIn returns the position in a header, or the zero position without the header. CodeInvalid: the header
// cannot be parsed.
func positionIn(h http.Header, name string) (tutti.Position, error) {
	text := h.Get(name)
	if text == "" {
		return tutti.Position{}, nil
	}
	fields := strings.Split(text, " ")
	if len(fields) != 4 || len(text) > 200 {
		return tutti.Position{}, tutti.Errorf(tutti.CodeInvalid, "%s: %.200q is not NUMBER RANDOM SEQ LINK", name, text)
	}
	number, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return tutti.Position{}, tutti.Wrap(tutti.CodeInvalid, err, "%s", name)
	}
	seq, err := strconv.ParseUint(fields[2], 10, 64)
	return tutti.Position{Epoch: tutti.Epoch{Number: number, Random: fields[1]}, Seq: seq, Link: tutti.Digest(fields[3])}, tutti.Wrap(tutti.CodeInvalid, err, "%s", name)
}

// Positions returns a server's position, and compares it with a position that an operator has seen.
type Positions interface {
	Position() tutti.Position
	// Behind returns CodeDamaged if the operator has seen a higher position.
	Behind(ctx context.Context, seen tutti.Position) error
}

// positioned adds the server's position to an answer when the answer begins. So the position includes what the call
// has appended.
type positioned struct {
	http.ResponseWriter
	position Positions
	begun    bool
}

func (p *positioned) begin() {
	if !p.begun {
		p.begun = true
		setPosition(p.Header(), headerPosition, p.position.Position())
	}
}

// WriteHeader implements http.ResponseWriter.
func (p *positioned) WriteHeader(status int) {
	p.begin()
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *positioned) Write(b []byte) (int, error) {
	p.begin()
	return p.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush.
func (p *positioned) Unwrap() http.ResponseWriter { return p.ResponseWriter }
