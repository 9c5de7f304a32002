package server

import "github.com/tutti-project/tutti/internal/server/operators"

// Ended returns a reader of ended runs, for the sender of reports.
func (s *Server) Ended() operators.Ended { return operators.Ended{Operators: s.Operators} }
