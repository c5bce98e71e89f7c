package mailing

// A Changed is what was read, and what is to stand in its place; what was read without a version is new.
type Changed[T any] struct{ Read, Become T }
