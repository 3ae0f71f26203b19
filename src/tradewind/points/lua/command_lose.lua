#!lua flags=allow-oom
-- A command that another owner of the channel was carrying out has lost it: it ends timeout, its outcome unknown.
-- KEYS 1 comsrv:{channel}:doing
-- ARGV 4 owner of the channel now
-- Returns the id of the command, '' when there was none.
-- include: command_shared
return lose_former(KEYS[1], ARGV[4]) or ''
