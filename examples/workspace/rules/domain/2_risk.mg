# The risk of changing a file.

worn(File) :- churn(File, Commits), Commits >= 15.
central(File) :- fan_in(File, Count), Count >= 8.
risky(File) :- worn(File), central(File).

reviewer(File, Owner) :- touched(File), owner(File, Owner).

in_area(File) :- to_change(File), area_path(File).
in_area(File) :- to_change(File), area_start(Start), :string:starts_with(File, Start).
in_area(File) :- to_change(File), area_end(End), :string:ends_with(File, End).

migration(File) :- touched(File), :string:contains(File, "migrations/").
migration(File) :- touched(File), :string:contains(File, "alembic/").
