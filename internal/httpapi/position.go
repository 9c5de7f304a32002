package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
)

// Each request contains the last position of the server that the operator has seen. Each answer contains the
// server's present position in the form `NUMBER RANDOM SEQ LINK` (ADR 0018). If the server was set back to an older
// state, its position is lower than the position in the request. The server then refuses the request.
const (
	headerSeen     = "Tutti-Seen"
	headerPosition = "Tutti-Position"
)

// Witness stores the highest position in a server's answers. The methods of a Witness can be called
// concurrently.
type Witness interface {
	Seen() tutti.Position
	// See gets the position of each answer, and stores the highest one.
	See(tutti.Position)
}

func setPosition(h http.Header, name string, p tutti.Position) {
	if p.Epoch.Number > 0 {
		h.Set(name, fmt.Sprintf("%d %s %d %s", p.Epoch.Number, p.Epoch.Random, p.Seq, p.Link))
	}
}

// positionIn returns the position in a header. If the header is missing, positionIn returns the zero position.
// positionIn returns CodeInvalid if it cannot parse the header.
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

// Positions returns a server's position and compares the position with the one that an operator has seen.
type Positions interface {
	Position() tutti.Position
	// Behind returns CodeDamaged if the operator has seen a higher position.
	Behind(ctx context.Context, seen tutti.Position) error
}

// positioned is a response writer. It adds the server's position when the answer begins. So the
// position includes the events that the call has appended.
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
