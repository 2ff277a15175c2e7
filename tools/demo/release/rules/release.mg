macro("publish_notes", "Publishes notes.txt.").
relevant("publish_notes", 80) :- intent("release").
macro_step("publish_notes", 1, "publish").
arg_value("publish_notes", 1, "file", "notes.txt").

macro("deploy_release", "Deploys the release.").
relevant("deploy_release", 70) :- intent("release").
macro_step("deploy_release", 1, "deploy").
