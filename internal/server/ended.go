package server

import "github.com/tutti-project/tutti/internal/server/operators"

// Ended returns a reader of ended runs, for the sender of reports.
func (s *Server) Ended() operators.Ended { return operators.Ended{Operators: s.Operators} }

// ENC returns the store for the answers of the site's ENC.
func (s *Server) ENC() operators.Classified { return operators.Classified{Operators: s.Operators} }

// Matches returns what decides which nodes are in groups with `where`.
func (s *Server) Matches() *operators.Matches { return operators.NewMatches(s.Operators) }
