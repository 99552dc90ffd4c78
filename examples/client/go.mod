module example.com/client

go 1.26.8

require github.com/holdfast-io/holdfast v0.0.0

replace github.com/holdfast-io/holdfast => ../..
