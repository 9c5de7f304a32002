module github.com/tutti-project/tutti

go 1.26.0
