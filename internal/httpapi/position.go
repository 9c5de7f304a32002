package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
)

// In each request an operator says how far the server was when it was last heard of, and each
// answer says how far it is: `NUMBER RANDOM SEQ LINK` (ADR 0018). A server that has gone back
// refuses.
const (
	headerSeen     = "Tutti-Seen"
	headerPosition = "Tutti-Position"
)

// Witness keeps how far a server was seen. It may be called at once.
type Witness interface {
	Seen() tutti.Position
	// See hears of each answer. It keeps the highest.
	See(tutti.Position)
}

func setPosition(h http.Header, name string, p tutti.Position) {
	if p.Epoch.Number > 0 {
		h.Set(name, fmt.Sprintf("%d %s %d %s", p.Epoch.Number, p.Epoch.Random, p.Seq, p.Link))
	}
}

// positionIn returns what a header says, the zero position without one. CodeInvalid: it says
// nothing that anybody can read.
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

// Positions is how far a server is, and whether it is further than somebody has seen it.
type Positions interface {
	Position() tutti.Position
	// Behind is CodeDamaged for whoever has seen more.
	Behind(ctx context.Context, seen tutti.Position) error
}

// positioned says in an answer how far the server is when it begins to answer: what the call
// has appended counts.
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
