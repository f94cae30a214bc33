// Mcpclient does what mcp-client.mjs does, with the SDK for Go.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// result is what the program prints.
type result struct {
	Tools   []string `json:"tools"`
	Text    string   `json:"text"`
	Session bool     `json:"session"`
	Scope   string   `json:"scope"`
	Error   string   `json:"error"`
}

func main() {
	r, err := ask(context.Background(), os.Args[1])
	if err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func ask(ctx context.Context, url string) (r result, err error) {
	credentials := &oauthex.ClientCredentials{
		ClientID:         os.Getenv("CLIENT_ID"),
		ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: os.Getenv("CLIENT_SECRET")},
	}
	handler, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{Credentials: credentials})
	if err != nil {
		return r, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, OAuthHandler: handler}, nil)
	if err != nil {
		return r, err
	}
	defer session.Close()
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		return r, err
	}
	for _, tool := range tools.Tools {
		r.Tools = append(r.Tools, tool.Name)
	}
	sum, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "add", Arguments: map[string]int{"a": 2, "b": 40}})
	if err != nil {
		return r, err
	}
	r.Text, r.Session = sum.Content[0].(*mcp.TextContent).Text, session.ID() != ""
	source, err := handler.TokenSource(ctx)
	if err != nil {
		return r, err
	}
	token, err := source.Token()
	if err != nil {
		return r, err
	}
	r.Scope, _ = token.Extra("scope").(string)
	return r, nil
}
